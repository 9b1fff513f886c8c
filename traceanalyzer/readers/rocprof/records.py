"""The fields of rocprofv3's JSON that are used, with their types; the machine's name and command line are not."""

from typing import Annotated, TypeAlias

import msgspec

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""What a table can hold, and sums of two."""


class Handle(msgspec.Struct, gc=False):
    """An id that the profiler wraps."""

    handle: Int = 0


class Correlation(msgspec.Struct, gc=False):
    """Which host call an operation comes from."""

    internal: Int = 0


class Extent(msgspec.Struct, gc=False):
    """Work-items in each dimension."""

    x: Int = 1
    y: Int = 1
    z: Int = 1


class Dispatch(msgspec.Struct):
    """Which kernel ran where."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: Int
    workgroup_size: Extent
    grid_size: Extent


class Timed(msgspec.Struct, kw_only=True):
    """What every record has."""

    start_timestamp: Int
    end_timestamp: Int
    kind: Int = 0
    operation: Int = 0
    thread_id: Int = 0
    correlation_id: Correlation


class Kernel(Timed, kw_only=True):
    """A kernel; without `stream_id` (older versions) the hardware queue stands for the stream."""

    dispatch_info: Dispatch
    stream_id: Handle | None = None


class Copy(Timed, kw_only=True):
    """A copy that a copy engine made."""

    src_agent_id: Handle
    dst_agent_id: Handle
    size_bytes: Int | None = msgspec.field(default=None, name="bytes")
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
    type: Int = 0
    product_name: str = ""
    name: str = ""
    logical_node_type_id: Int = 0


class Operations(msgspec.Struct):
    """Names of one domain's operations, by number."""

    kind: str = ""
    operations: list[str] = []


class Message(msgspec.Struct):
    """The text of a marker, by its correlation id."""

    key: Int
    value: str


class Strings(msgspec.Struct):
    """Names."""

    buffer_records: list[Operations] = []
    marker_api: list[Message] = []


class Symbol(msgspec.Struct):
    """A kernel's names."""

    kernel_id: Int
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Metadata(msgspec.Struct):
    """The process; of what the file says besides (host, command line, configuration) nothing is read."""

    pid: Int | None = None
    init_time: Int | None = None
    fini_time: Int | None = None


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
