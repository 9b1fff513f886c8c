"""Transfer and wait of communication in joined tables of kernels, operators and collectives."""

from functools import cache

import pytest

from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.diff import compare
from traceanalyzer.diff.captures import Capture, Side, of_json, of_results, shared_steps, to_json
from traceanalyzer.report.comparison.rows import table_view
from traceanalyzer.selection import with_steps

NEEDED = ("ranks", "headline", "breakdown", "steps", "micro_steps", "nccl", "kernels", "operators", "calls", "call_waits",
          "timeline", "exposed_comm", "idle", "call_phases", "comm_phases", "categories")  # fmt: skip

IS_COMMUNICATION = {
    "nccl": lambda table: table["collective"].notna(),
    "kernels": lambda table: table["kind"] == "comm",
    "kernel_operations": lambda table: table["kind"] == "comm",
    "operators": lambda table: table["operator"] == "record_param_comms",
    "comm_phases": lambda table: table["collective"].notna(),
    "categories": lambda table: table["category"] == "communication",
}


@cache
def of_complete_steps():
    return run([with_steps(trace, "complete") for trace in sample("ddp").ranks], NEEDED)


def results(**changed):
    found = of_complete_steps()
    return {**found, **{name: type(found[name])(change(found[name].table)) for name, change in changed.items()}}


def capture(found, label):
    tables = of_results(found)
    steps = shared_steps(tables["steps"], tables["breakdown"])
    return Capture(label, "traces", tables, steps, is_exact=True)


def joined(base, other):
    made = compare([Side("a", (base,)), Side("b", (other,))], force=True)
    return {table.analysis: table for table in made.tables["b"]}


@pytest.fixture(scope="module")
def known():
    return capture(results(), "a")


@pytest.fixture(scope="module")
def tables(known):
    """Joined with itself, but for one call of the other whose transfer is not known."""
    last = of_complete_steps()["calls"].table.iloc[-1]

    def without_the_last(waits):
        is_last = (waits["rank"] == last["rank"]) & (waits["call"] == last["call"])
        return waits.assign(**{column: waits[column].mask(is_last) for column in ("transfer_ns", "wait_ns")})

    return joined(known, capture(results(call_waits=without_the_last), "b"))


@pytest.mark.parametrize("name", IS_COMMUNICATION)
def test_rows_of_communication_are_their_calls_transfers_and_waits(name, known, tables):
    found = results()
    table = tables[name].frame
    own = table[IS_COMMUNICATION[name](table)]
    calls = found["calls"].table[["rank", "call"]].merge(found["call_waits"].table, on=["rank", "call"])
    for column in ("transfer_ns", "wait_ns"):
        assert own[f"base_{column}"].sum() == calls[column].sum() / len(found["ranks"]) / known.per > 0
    assert table[~table.index.isin(own.index)][["base_transfer_ns", "base_wait_ns"]].isna().all(axis=None)


def test_a_baseline_keeps_them(known):
    saved = of_json(to_json(known), "baseline")
    for name in ("nccl", "kernels", "operators"):
        assert saved.tables[name]["wait_ns"].sum() == known.tables[name]["wait_ns"].sum() > 0


def test_the_page_shows_the_time_of_mixed_tables_and_the_split_of_communication(known):
    def longer(waits):
        return waits.assign(transfer_ns=waits["transfer_ns"] + waits["wait_ns"], wait_ns=0)

    tables = joined(known, capture(results(call_waits=longer), "b"))
    view = table_view(tables["kernels"])
    names = [column.name for column in view.columns]
    assert "base_total_ns" in names
    row = next(row for row in view.rows if row.cells[0].full.startswith("nccl"))
    assert sorted(piece.look for piece in row.bar) == ["transfer", "wait"]
    assert "base_total_ns" not in [column.name for column in table_view(tables["nccl"]).columns]
