"""The Results that findings and sentences are of: all the others take three times as long."""

import inspect

from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.findings import RULES, find

_OF_THE_VERDICT = ("stragglers", "integrity", "ranks", "headline", "nccl", "mfu", "time_parts", "over_ranks",
                   "host_work_over_ranks", "cpu_steps", "cpu_step_parts")  # fmt: skip

_OF_RULES = {name for rule in RULES for name in inspect.signature(rule).parameters if name in ANALYSES}

ASKED = tuple(name for name in ANALYSES if name in {*_OF_RULES, *_OF_THE_VERDICT})


def said_of(*traces):
    """The findings of these ranks."""
    return find(run(traces, ASKED))
