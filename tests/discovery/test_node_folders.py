"""Ranks within nodes that repeat from folder to folder."""

import pytest

import traceanalyzer as ta
from tests.simulator import capture, kineto, run, spoiled
from tests.simulator import workloads as usual


def loaded(folder, job, *spoils):
    kineto.write(capture(run(job)), folder)
    for spoil in spoils:
        spoil(folder)
    return ta.load(folder)


def without_groups(folder):
    """Nothing in the files tells how large groups are."""
    change = spoiled.without({"kernel"})
    for path in folder.rglob("rank*.json.gz"):
        document = spoiled.read(path)
        kernels = [
            each | {"args": {"device": 0, "stream": 7}} for each in document["traceEvents"] if each["cat"] == "kernel"
        ]
        change(document)
        document["traceEvents"] = [
            *(each for each in document["traceEvents"] if each["name"] != "record_param_comms"),
            *kernels,
        ]
        spoiled.write(path, document)


@pytest.mark.parametrize("names", ["node{}", "hgx-{}-a"])
def test_ranks_within_nodes_are_counted_through_the_folders(tmp_path, names):
    traces = loaded(tmp_path, usual.tp_dp(2, 2, 2), spoiled.of_nodes(2, 4, names))
    assert [trace.rank for trace in traces.ranks] == [0, 1, 2, 3]
    assert traces.skipped == ()
    assert any("Ranks are counted through the folders of nodes" in note for note in traces.notes)
    groups = traces.ranks[3].comm_args["group_ranks"].astype("str").unique()
    assert all("3" in group for group in groups)


def test_two_jobs_of_two_ranks_are_not_one_of_four(tmp_path):
    """The groups of each folder are of two ranks."""
    for place in range(2):
        loaded(tmp_path / f"node{place}", usual.ddp(2, 2), _nameless)
    traces = ta.load(tmp_path)
    assert [trace.rank for trace in traces.ranks] == [0, 1]


def _nameless(folder):
    for path in folder.glob("rank*.json.gz"):
        document = spoiled.read(path)
        del document["distributedInfo"]
        spoiled.write(path, document)


def test_without_groups_the_second_file_is_refused_with_what_to_do(tmp_path):
    traces = loaded(tmp_path, usual.ddp(4, 2), spoiled.of_nodes(2, 4), without_groups)
    assert [trace.rank for trace in traces.ranks] == [0, 1]
    assert len(traces.skipped) == 2
    assert all("let names tell each file's rank in the whole job" in one.why for one in traces.skipped)


def test_folders_whose_groups_hold_other_ranks_are_not_counted(tmp_path):
    """Nodes' folders in another order than their ranks: the tensor groups of the first one are of ranks 2 and 3."""
    traces = loaded(tmp_path, usual.tp_dp(2, 2, 2), spoiled.of_nodes(2, 4), _swapped)
    assert [trace.rank for trace in traces.ranks] == [0, 1]


def _swapped(folder):
    (folder / "node0").rename(folder / "old")
    (folder / "node1").rename(folder / "node0")
    (folder / "old").rename(folder / "node1")
