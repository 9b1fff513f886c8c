"""Breakdowns against counting nanosecond by nanosecond, and what may be changed in a trace without changing them."""

import json
import random

import pytest

from tests import nsys_builders as nsys
from tests.builders import NAMES, document, host, kernel, rank_trace, write
from tests.conftest import sampled
from traceanalyzer.analyses import run
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto

FIGURES = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "comm_ns")


def ops_of(rng):
    """Any kinds on any streams, nested, equal, of no length."""
    return [
        (kind, start := rng.randrange(60), start + rng.choice((0, 0, 1, 3, 20)))
        for kind in rng.choices(("compute", "comm", "copy"), k=rng.randint(1, 12))
    ]


def counted(ops):
    """Every nanosecond of the window looked at by itself."""
    begin, end = min(op[1] for op in ops), max(op[2] for op in ops)
    found = dict.fromkeys(FIGURES, 0) | {"window_ns": end - begin}
    for moment in range(begin, end):
        running = {kind for kind, start, stop in ops if start <= moment < stop}
        if "compute" in running:
            found["compute_ns"] += 1
        elif "comm" in running:
            found["exposed_comm_ns"] += 1
        elif "copy" in running:
            found["exposed_copy_ns"] += 1
        else:
            found["idle_ns"] += 1
        found["comm_ns"] += "comm" in running
    return found


def figures(traces):
    rows = run(traces, ["breakdown"])["breakdown"].rows()
    return [{name: row[name] for name in FIGURES} for row in rows]


@pytest.mark.parametrize("hundred", sampled(range(20), every=20))
def test_breakdowns_are_those_of_counting(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        ops = ops_of(random.Random(seed))
        assert figures([rank_trace(ops)]) == [counted(ops)], (seed, ops)


def events_of(ops, shift_us=0.0):
    """The operations as a Kineto file has them, a nanosecond a unit."""
    cat = {"copy": "gpu_memcpy"}
    return [
        event for number, (kind, start, end) in enumerate(ops, 1) for event in (
            host(shift_us + 0.001 * start, 0, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number),
            kernel(shift_us + 0.001 * start, 0.001 * (end - start), name=NAMES[kind], stream=7 + len(kind), correlation=number,
                   cat=cat.get(kind, "kernel")),
        )
    ]  # fmt: skip


def read(path, rank=0):
    return list(kineto.read(path, RankHint(rank, "path"), KindRules()))


def exported(ops):
    """The same operations as an Nsight Systems export."""
    tables = nsys.export() | {"CUPTI_ACTIVITY_KIND_KERNEL": [], "CUPTI_ACTIVITY_KIND_MEMCPY": [], "NVTX_EVENTS": []}
    del tables["CUPTI_ACTIVITY_KIND_MEMSET"]
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [nsys.call(start, start, correlation=number) for number, (_, start, _) in enumerate(ops, 1)]  # fmt: skip
    for number, (kind, start, end) in enumerate(ops, 1):
        if kind == "copy":
            tables["CUPTI_ACTIVITY_KIND_MEMCPY"].append(nsys.memcpy(start, end, correlation=number))
        else:
            row = nsys.kernel(start, end, correlation=number, name=1 if kind == "compute" else 6, stream=7 + len(kind))
            tables["CUPTI_ACTIVITY_KIND_KERNEL"].append(row)
    return {name: rows for name, rows in tables.items() if rows}


@pytest.mark.parametrize("seed", sampled(range(60), every=20))
def test_what_changes_nothing(tmp_path, seed):
    rng = random.Random(1000 + seed)
    ops = ops_of(rng)
    expected = [counted(ops)]
    events = events_of(ops)
    assert figures(read(write(tmp_path / "a.json", document(events)))) == expected
    shift = rng.choice((1.0, 86_400e6, 1_700_000_000_000_000.0 / 1024))
    assert figures(read(write(tmp_path / "shifted.json", document(events_of(ops, shift))))) == expected, shift
    based = document(events, base_ns=1_790_000_000_000_000_000)
    assert figures(read(write(tmp_path / "based.json.gz", based))) == expected
    rng.shuffle(events)
    assert figures(read(write(tmp_path / "permuted.json", document(events)))) == expected
    text = json.dumps(document(events), indent=rng.choice((None, 3)), ensure_ascii=False).encode()
    assert figures(read(write(tmp_path / "spaced.json", text), rank=5)) == expected
    path = nsys.write_sqlite(tmp_path / "a.sqlite", exported(ops))
    assert figures(nsys.read_all(path)) == expected
    by_sql = sums_by_sql(path)
    assert by_sql == sum(end - start for _, start, end in ops)


def sums_by_sql(path):
    """Time of all operations, as the database itself adds it up."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master")
            if name.endswith(("_KERNEL", "_MEMCPY"))
        ]
        return sum(database.execute(f'SELECT sum("end" - start) FROM {name}').fetchone()[0] or 0 for name in tables)


def test_names_of_ranks_change_no_figure():
    first, second = ops_of(random.Random(1)), ops_of(random.Random(2))
    one = figures([rank_trace(first, rank=0), rank_trace(second, rank=1)])
    other = figures([rank_trace(second, rank=0), rank_trace(first, rank=7)])
    assert one == other[::-1]
