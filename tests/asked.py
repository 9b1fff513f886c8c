"""The Results that findings and sentences are of: all the others take three times as long."""

from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.findings import find, results_of_kinds

_OF_THE_VERDICT = ("stragglers", "integrity", "ranks", "headline", "nccl", "mfu", "time_parts",
                   "host_work", "cpu_steps")  # fmt: skip

ASKED = tuple(name for name in ANALYSES if name in {*results_of_kinds(), *_OF_THE_VERDICT})


def said_of(*traces):
    """The findings of these ranks."""
    return find(run(traces, ASKED))
