"""The fields of rocprofv3's JSON that are used, with their types; the machine's name and command line are not."""

import msgspec


class Handle(msgspec.Struct, gc=False):
    """An id that the profiler wraps."""

    handle: int = 0


class Correlation(msgspec.Struct, gc=False):
    """Which host call an operation comes from."""

    internal: int = 0


class Extent(msgspec.Struct, gc=False):
    """Work-items in each dimension."""

    x: int = 1
    y: int = 1
    z: int = 1


class Dispatch(msgspec.Struct):
    """Which kernel ran where."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: int
    workgroup_size: Extent
    grid_size: Extent


class Timed(msgspec.Struct, kw_only=True):
    """What every record has."""

    start_timestamp: int
    end_timestamp: int
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: Correlation


class Kernel(Timed, kw_only=True):
    """A kernel; without `stream_id` (older versions) the hardware queue stands for the stream."""

    dispatch_info: Dispatch
    stream_id: Handle | None = None


class Copy(Timed, kw_only=True):
    """A copy that a copy engine made."""

    src_agent_id: Handle
    dst_agent_id: Handle
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    stream_id: Handle | None = None


class Buffers(msgspec.Struct):
    """Records by domain."""

    kernel_dispatch: list[Kernel] = []
    memory_copy: list[Copy] = []
    hip_api: list[Timed] = []
    marker_api: list[Timed] = []
    rccl_api: list[Timed] = []


class Agent(msgspec.Struct):
    """A processor; `type` 2 is a GPU, `logical_node_type_id` its number among them."""

    id: Handle
    type: int = 0
    product_name: str = ""
    name: str = ""
    logical_node_type_id: int = 0


class Operations(msgspec.Struct):
    """Names of one domain's operations, by number."""

    kind: str = ""
    operations: list[str] = []


class Message(msgspec.Struct):
    """The text of a marker, by its correlation id."""

    key: int
    value: str


class Strings(msgspec.Struct):
    """Names."""

    buffer_records: list[Operations] = []
    marker_api: list[Message] = []


class Symbol(msgspec.Struct):
    """A kernel's names."""

    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Metadata(msgspec.Struct):
    """The process; of what the file says besides (host, command line, configuration) nothing is read."""

    pid: int | None = None
    init_time: int | None = None
    fini_time: int | None = None


class Process(msgspec.Struct):
    """One process."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    agents: list[Agent] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)


class Content(msgspec.Struct):
    """The whole file: one process, or several merged."""

    processes: list[Process] | Process = msgspec.field(name="rocprofiler-sdk-tool")
