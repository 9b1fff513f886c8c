"""Operators against a slow implementation that looks every event up by itself."""

from collections import defaultdict

from hypothesis import given

from tests.analyses.random_events import RANKS, kineto_events, read
from tests.conftest import examples
from traceanalyzer.analyses import run
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR

FIGURES = ("calls", "host_self_ns", "host_total_ns", "gpu_ops", "gpu_own_ns", "gpu_total_ns")


def around(operators, one):
    """The operator that called this one, its caller and so on.

    A caller holds it (begins no later, ends no earlier, and has not ended when it begins); of several the innermost.
    Of two that overlap and do not hold each other neither calls the other.
    """
    held = [
        other for other in operators
        if other is not one and other.thread == one.thread
        and other.start <= one.start < other.end and one.end <= other.end
    ]  # fmt: skip
    caller = min(held, key=lambda other: (-other.start, other.end), default=None)
    return [caller, *around(operators, caller)] if caller else []


def counted(rank):
    operators = [event for event in rank.host if event.cat == "cpu_op"]
    found = defaultdict(lambda: dict.fromkeys(FIGURES, 0))
    for one in operators:
        above = around(operators, one)
        row = found[one.name]
        row["calls"] += 1
        row["host_self_ns"] += one.end - one.start
        if above:
            found[above[0].name]["host_self_ns"] -= one.end - one.start
        if one.name not in {other.name for other in above}:
            row["host_total_ns"] += one.end - one.start
    for op in rank.gpu:
        spent = op.end - op.start
        if op.launch is None:
            names = [NO_LAUNCH]
        else:
            running = [
                event for event in operators
                if event.thread == op.launch.thread and event.start <= op.launch.start < event.end
            ]  # fmt: skip
            own = min(running, key=lambda event: (-event.start, event.end), default=None)
            names = [own.name, *(other.name for other in around(operators, own))] if own else [NO_OPERATOR]
        found[names[0]]["gpu_ops"] += 1
        found[names[0]]["gpu_own_ns"] += spent
        for name in set(names):
            found[name]["gpu_total_ns"] += spent
    for name in (NO_LAUNCH, NO_OPERATOR):
        if name in found:
            found[name] |= dict.fromkeys(("calls", "host_self_ns", "host_total_ns"))
    return dict(found)


def figures(traces, rank=0):
    rows = run(traces, ["operators"])["operators"].rows()
    return {row["operator"]: {name: row[name] for name in FIGURES} for row in rows if row["rank"] == rank}


@examples(10)
@given(RANKS)
def test_operators_are_those_looked_up_one_by_one(tmp_path_factory, rank):
    assert figures([read(tmp_path_factory.getbasetemp(), kineto_events(rank))]) == counted(rank)
