"""The fields of Kineto events that are used, with their types and ranges."""

from decimal import Decimal
from typing import Annotated, TypeAlias

import msgspec

from traceanalyzer.decoding.columns import ABSENT

_TIME_US = 4 * 10**15
"""The year 2096; with a time base of at most as much, all sums stay within int64 nanoseconds."""

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]

Time: TypeAlias = Annotated[float, msgspec.Meta(ge=-_TIME_US, le=_TIME_US)]

Duration: TypeAlias = Annotated[float, msgspec.Meta(ge=-_TIME_US, le=10**12)]
"""No event lasts longer than twelve days."""

_NOT_RECORDED = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """`args` of a complete event, in the profiler's own order: a key out of order has to be searched for."""

    external_id: Int = msgspec.field(default=-1, name="External id")
    op_sequence: Int | None = msgspec.field(default=ABSENT, name="Sequence number")
    forward_thread: Int | None = msgspec.field(default=ABSENT, name="Fwd thread id")
    arguments: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Concrete Inputs")
    dtypes: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input Strides")
    shapes: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input Dims")
    kernel: str | None = None
    device: Int | None = None
    stream: Int | None = None
    correlation: Int = -1
    graph_node: Int | None = msgspec.field(default=None, name="graph node id")
    note: str | None = msgspec.field(default=None, name="name")
    module: str | None = msgspec.field(default=None, name="module_fqn")
    size_bytes: Int | None = msgspec.field(default=None, name="bytes")
    grid: msgspec.Raw = _NOT_RECORDED
    block: msgspec.Raw = _NOT_RECORDED
    in_device: Int | None = msgspec.field(default=None, name="inDevice")
    from_device: Int | None = msgspec.field(default=None, name="fromDevice")
    to_device: Int | None = msgspec.field(default=None, name="toDevice")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    in_elements: Int | None = msgspec.field(default=None, name="In msg nelems")
    out_elements: Int | None = msgspec.field(default=None, name="Out msg nelems")
    group_size: Int | None = msgspec.field(default=None, name="Group size")
    dtype: str | None = None
    in_split: str | None = msgspec.field(default=None, name="In split size")
    out_split: str | None = msgspec.field(default=None, name="Out split size")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    group_ranks: str | None = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Int | None = msgspec.field(default=None, name="Seq")
    rank: Int | None = msgspec.field(default=None, name="Rank")
    source_rank: Int | None = msgspec.field(default=None, name="Src Rank")
    target_rank: Int | None = msgspec.field(default=None, name="Dst Rank")
    source_stream: Int | None = msgspec.field(default=None, name="wait_on_stream")
    record_correlation: Int = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    old_shapes: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input dims")  # PyTorch 1.8 and 1.9


class _Complete(msgspec.Struct, gc=False):
    cat: str = ""
    name: str = ""
    pid: Int | str = -1
    tid: Int | str = -1
    dur: Duration = 0.0
    args: Args | None = None


class Complete(_Complete, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event; times in µs."""

    ts: Time


class ExactComplete(_Complete, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event whose `ts` is too large for a float to be exact to the nanosecond."""

    ts: Decimal

    def __post_init__(self) -> None:
        if not (self.ts.is_finite() and abs(self.ts) <= _TIME_US):
            raise ValueError("ts is out of range")


class MemoryArgs(msgspec.Struct, gc=False):
    """`args` of a `[memory]` event."""

    allocated: Int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: Int | None = msgspec.field(default=None, name="Total Reserved")
    address: Int | None = msgspec.field(default=None, name="Addr")
    device: Int | None = msgspec.field(default=None, name="Device Id")
    device_type: Int | None = msgspec.field(default=None, name="Device Type")


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An instant event."""

    ts: Time = 0.0
    name: str = ""
    tid: Int | str = -1
    args: MemoryArgs | None = None


class Sample(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """A counter event: `args` are values by counter."""

    ts: Time = 0.0
    cat: str = ""
    pid: Int | str = -1
    args: msgspec.Raw = _NOT_RECORDED


def _ignored(phase: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Ignored{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)


# Flows, metadata and whatever else the Chrome format knows: decoding them costs next to nothing.
IGNORED = tuple(_ignored(phase) for phase in "sftMBEbenNODPpRcvVISTF(),")
