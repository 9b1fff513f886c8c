"""What a profiler records, and of which steps."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """What to record, and at what cost.

    `record_shapes` adds input shapes to operators (about a tenth more host time); `with_stack` Python frames
    (host time doubles or worse, traces grow several times); `profile_memory` an event an allocation (traces
    grow by about a half). `nvtx_ops` writes an NVTX range an operator under Nsight Systems, at the price of
    the operators' host time about doubling. `stream_waits` adds one event a synchronisation, where the version
    of torch can record them. Whatever makes the host slower can turn a GPU-bound step into a
    host-bound one; un-profiled step times stand in run.json for comparison.
    """

    profiler: Literal["torch", "nsys", "none"] = "torch"
    wait: int = 1
    warmup: int = 2
    active: int = 4
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    nvtx_ops: bool = False
    stream_waits: bool = True

    @property
    def first_active(self) -> int:
        """Steps before the first recorded one."""
        return self.wait + self.warmup

    @property
    def steps(self) -> int:
        """Steps to take while profiling."""
        return 0 if self.profiler == "none" else self.first_active + self.active
