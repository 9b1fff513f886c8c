"""Copies by direction against a slow implementation: piece by piece of the time, between any two events."""

from hypothesis import given

from tests.analyses.random_events import COPIES, RANKS, kineto_events, pieces, read, runs
from tests.builders import NAMES
from tests.conftest import examples
from traceanalyzer.analyses import run

KEYS = ("direction", "source_memory", "target_memory")
FIGURES = ("copies", "size_bytes", "total_ns", "busy_ns", "exposed_ns", "with_other_copies_ns")


def counted(rank):
    found = {}
    for op in rank.gpu:
        if op.name in COPIES:
            row = found.setdefault(COPIES[op.name], dict.fromkeys(FIGURES, 0))
            row["copies"] += 1
            row["size_bytes"] += op.size
            row["total_ns"] += op.end - op.start
    for piece in pieces(moment for op in rank.gpu for moment in (op.start, op.end)):
        length = piece[1] - piece[0]
        running = {op.name for op in rank.gpu if runs(op, piece)}
        computes, communicates = bool(running & {"gemm", "add"}), NAMES["comm"] in running
        moving = {COPIES[name] for name in running & set(COPIES)}
        for key in moving:
            row = found[key]
            row["busy_ns"] += length
            row["exposed_ns"] += length * (not computes and not communicates)
            row["with_other_copies_ns"] += length * bool({other[0] for other in moving} - {key[0], "memset"})
    return found


def figures(traces, rank=0):
    rows = run(traces, ["copies"])["copies"].rows()
    return {
        tuple(row[key] for key in KEYS): {name: row[name] for name in FIGURES} for row in rows if row["rank"] == rank
    }


@examples(10)
@given(RANKS)
def test_copies_are_those_counted(tmp_path_factory, rank):
    assert figures([read(tmp_path_factory.getbasetemp(), kineto_events(rank))]) == counted(rank)
