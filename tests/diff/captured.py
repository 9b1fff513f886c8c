"""Captures and sides for tests of comparisons, from literals."""

from functools import cache

from tests.builders import rank_trace
from traceanalyzer import analyses
from traceanalyzer.diff.captures import Capture, Side, of_results, shared_steps

STEPS = [(0, 100), (100, 200)]
"""Host ranges of two steps."""


@cache
def steady(compute, comm=0, idle=0, *, ranks=2):
    """Ranks whose every step computes, communicates and idles for these times."""
    length = compute + comm + idle
    ops = []
    for number in range(2):
        start = 1000 + number * length
        ops.append(("compute", start, start + compute, start))
        if comm:
            ops.append(("comm", start + compute, start + compute + comm, start))
    steps = [(1000 + number * length, 1000 + (number + 1) * length) for number in range(2)]
    return [rank_trace(ops, rank=rank, steps=steps, wanted="complete", world_size=ranks) for rank in range(ranks)]


NEEDED = (
    "ranks",
    "headline",
    "breakdown",
    "steps",
    "micro_steps",
    "nccl",
    "kernels",
    "exposed_comm",
    "idle",
    "time_parts",
)


def capture(traces, label="run", **more):
    tables = _tables(traces)
    steps = shared_steps(tables["steps"], tables["breakdown"])
    return Capture(label, "traces", tables, steps, is_exact=True, **more)


def _tables(traces):
    """Those of the same traces are made once."""
    key = tuple(map(id, traces))
    if key not in _HELD:
        _HELD[key] = traces, of_results(analyses.run(traces, NEEDED))
    return dict(_HELD[key][1])


_HELD = {}


def side(label, *captures):
    return Side(label, tuple(captures))
