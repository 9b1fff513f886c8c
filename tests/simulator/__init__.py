"""A simulated multi-GPU job: runs programs of hosts, streams and collectives, and writes what profilers would record.

    job = scenarios.ddp(ranks=8, slow_compute_ns={5: 2_000_000})
    captured = capture(run(job), Capture(offset_ns={3: 2_000_000}))
    kineto.write(captured, folder)

Everything that an analysis should find is known: each call's true wait (`Run.calls`), the rank that a scenario
slows down, the clock offsets and the losses of a `Capture`.
"""

from tests.simulator.capture import Capture, Recorded, capture
from tests.simulator.engine import Call, Run, run
from tests.simulator.program import Group, Job, Program

__all__ = ["Call", "Capture", "Group", "Job", "Program", "Recorded", "Run", "capture", "run"]
