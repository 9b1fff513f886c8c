"""What follows in each call once its last partner is there, from calls that are written out."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.job import _joins


def joined(calls, offset_ns=(0, 0, 0)):
    """Calls (rank, call, instance, start, end) and whether they synchronise; by rank what its clock shows too much."""
    columns = ["rank", "call", "instance", "start_ns", "end_ns", "synchronises"]
    table = pd.DataFrame(calls, columns=columns).astype({"instance": "Int64"})
    wait = pd.array([0 if is_sync else None for is_sync in table.pop("synchronises")], dtype="Int64")
    clock = table["rank"].map(dict(enumerate(offset_ns)))
    table = table.assign(wait_ns=wait, collective="send", size_bytes=8, is_whole=True)
    table[["start_ns", "end_ns"]] = table[["start_ns", "end_ns"]].add(clock + 1_000, axis=0)
    ops = {rank: pd.DataFrame({"call": [-1, *sorted({*own})]}) for rank, own in table.groupby("rank")["call"]}
    nodes = {rank: SimpleNamespace(piece=SimpleNamespace(ops=own)) for rank, own in ops.items()}
    return _joins(SimpleNamespace(nodes=nodes, offset_ns=offset_ns, origin_ns=1_000), table)


@pytest.mark.parametrize("offset_ns", [(0, 0, 0), (5_000, -300, 70)], ids=["one clock", "clocks that differ"])
@pytest.mark.parametrize(
    ("calls", "ready_ns", "transfer_ns", "waits"),
    [
        # the last one comes at 30
        ([(0, 1, 7, 0, 50, True), (1, 1, 7, 30, 50, True)], [30, 30], [20, 20], [True, True]),
        ([(0, 1, 7, 0, 52, True), (1, 1, 7, 30, 50, True)], [30, 30], [22, 20], [True, True]),
        # a send that had ended by then did not wait
        ([(0, 1, 7, 0, 10, False), (1, 1, 7, 40, 60, False)], [40, 40], [-30, 20], [False, True]),
        ([(0, 1, 7, 0, 41, False), (1, 1, 7, 40, 60, False)], [40, 40], [1, 20], [True, True]),
        ([(0, 1, 7, 0, 30, True), (1, 1, 7, 40, 60, True)], [40, 40], [-10, 20], [True, True]),
        # of two messages in one call the later one decides; the other takes what its other end shows
        ([(0, 5, 1, 0, 100, False), (0, 5, 2, 0, 100, False), (1, 1, 1, 30, 45, False), (2, 1, 2, 60, 100, False)],
         [30, 60, 30, 60], [15, 40, 15, 40], [True, True, True, True]),
        # one that had ended before its partner came decides nothing
        ([(0, 5, 1, 0, 50, False), (0, 5, 2, 0, 50, False), (1, 1, 1, 30, 50, False), (2, 1, 2, 60, 100, False)],
         [30, 60, 30, 60], [20, 20, 20, 40], [True, False, True, True]),
    ],
    ids=["a collective", "ends that differ", "sent before", "hardly waited", "by a wrong clock", "two messages", "one sent before"],
)  # fmt: skip
def test_what_follows_the_last_partner(calls, ready_ns, transfer_ns, waits, offset_ns):
    found = joined(calls, offset_ns)
    assert found["ready_ns"].tolist() == ready_ns
    assert found["transfer_ns"].tolist() == transfer_ns
    assert found["own_ns"].tolist() == np.maximum(transfer_ns, 0).tolist()
    assert found["waits"].tolist() == waits


def test_calls_in_no_instance_and_of_ranks_that_are_not_replayed_join_nothing():
    found = joined([(0, 3, 9, 0, 50, True), (0, 4, None, 60, 70, True), (1, 2, 9, 30, 50, True)])
    assert found[["rank", "call", "op", "instance"]].to_numpy().tolist() == [[0, 3, 1, 0], [1, 2, 1, 0]]
