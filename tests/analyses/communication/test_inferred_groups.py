"""Kernels that spin on peers but name no group: matched over the ranks that run them alike; pure waits everywhere."""

import pandas as pd
import pytest

from tests import once
from tests.analyses.communication.test_members import Ranks, rank, waits
from traceanalyzer.analyses.communication import waits as communication_waits

MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
BARRIER = "c10d::symmetric_memory::barrier_kernel(unsigned int**, int)"
PAIR = "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)"


def spin(name=MULTIMEM, collective="all_reduce", **more):
    return {"name": name, "collective": collective, "group": None, "group_ranks": None, "group_size": pd.NA,
            "arguments": None, "dtype": None, "size_bytes": pd.NA, **more}  # fmt: skip


RING = "kuserbuffers_pushsendrecv(int*, int*, int4*, int4*, int, int, int, int*, int*, int, unsigned long)"


def of_job(size, *ranks):
    """The ranks' tables with the job's size; each has a call of a named group first, as real captures do."""
    return {
        number: table.assign(world_size=pd.array([size] * len(table), dtype="Int64"))
        for number, table in enumerate(ranks)
    }


FIRST = (0, 10)


def test_ranks_that_run_a_kernel_alike_are_its_group():
    parts = of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin())))
    frame = communication_waits.members_across(parts, Ranks(*parts)).to_frame()
    assert frame["matched_by"].tolist() == ["step and position", "step and position; group inferred"] * 2
    assert waits(present=parts)[0, 1] == (70, 1, None)
    assert waits(present=parts)[1, 1] == (0, None, None)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (of_job(4, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin()))), "a rank of its group has no trace"),
        (of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST)), "not seen on every rank of its group"),
        (of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin(PAIR)))), "not seen on every rank of its group"),
    ],
)  # fmt: skip
def test_where_ranks_differ_nothing_is_inferred(parts, why):
    assert waits(present=parts)[0, 1] == (None, None, why)


def test_groups_of_the_size_in_the_name_are_those_that_other_calls_name():
    def of_pair(text, *calls):
        return rank((0, 10, {"group": text, "group_ranks": text}), *calls)

    parts = of_job(
        4, of_pair("0,1", (20, 100, spin(PAIR, group_size=2))), of_pair("0,1", (90, 100, spin(PAIR, group_size=2))),
        of_pair("2,3", (50, 130, spin(PAIR, group_size=2))), of_pair("2,3", (60, 130, spin(PAIR, group_size=2))),
    )  # fmt: skip
    found = waits(present=parts)
    assert [found[number, 1][:2] for number in range(4)] == [(70, 1), (0, None), (10, 3), (0, None)]


def of_mesh(late=(), listed=("tp=0,1;dp=0,2", "tp=0,1;dp=1,3", "tp=2,3;dp=0,2", "tp=2,3;dp=1,3"), **more):
    """Two pairs of ranks that spin on each other, at moments of their own; `late` ranks come 60 ns later."""
    begins = ((1_000_000, 5_000_000, 9_000_000), (2_300_000, 5_100_000, 9_900_000))
    tables = []
    for number in range(4):
        ends = [begin + 100 for begin in begins[number // 2]]
        starts = [end - (20 if number in late else 80) for end in ends]
        tables.append(rank(*zip(starts, ends, [spin(**more)] * 3, strict=True)))
    parts = of_job(4, *tables)
    return {number: part.assign(listed_groups=listed[number]) for number, part in parts.items()}


@pytest.mark.parametrize(
    "listed",
    [
        ("tp=0,1;dp=0,2", "tp=0,1;dp=1,3", "tp=2,3;dp=0,2", "tp=2,3;dp=1,3"),
        ("undefined=0,1;undefined=0,2", "undefined=0,1;undefined=1,3", "undefined=2,3;undefined=0,2", "undefined=2,3"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"name": PAIR, "group_size": 2}, {"name": RING, "collective": "send_recv"}])
def test_of_the_groups_that_files_list_those_whose_calls_end_together(listed, more):
    found = waits(present=of_mesh((1,), listed, **more))
    assert [found[0, place] for place in range(3)] == [(60, 1, None)] * 3
    assert [found[1, place][0] for place in range(3)] == [0] * 3
    assert [found[2, place][0] for place in range(3)] == [0] * 3


def test_groups_that_fit_equally_well_are_not_told_apart():
    calls = [(at, at + 100, spin(PAIR, group_size=2)) for at in (0, 1_000_000, 5_000_000)]
    parts = of_job(4, *(rank(*calls) for _ in range(4)))
    tables = of_mesh()
    parts = {number: part.assign(listed_groups=tables[number]["listed_groups"]) for number, part in parts.items()}
    assert waits(present=parts)[0, 0] == (None, None, "the ranks of its group are not known")
    whole = {number: part.assign(group_size=pd.NA) for number, part in parts.items()}
    assert waits(present=whole)[0, 0] == (0, None, None), "all four end together: the job is the group"


def test_a_pure_receive_is_wait():
    receive = spin("kuserbuffers_pushrecv(int, int, int, int, int*)", "recv")
    assert waits(present=of_job(8, rank((20, 100, receive))))[0, 0] == (80, None, None)


def test_a_group_of_one_rank_waits_for_nobody():
    alone = {"group_ranks": "0", "group_size": 1}
    assert waits(rank((0, 100, alone)))[0, 0] == (None, None, "a group of one rank waits for nobody")


def test_a_pure_wait_waits_for_the_rank_that_came_last():
    parts = of_job(
        2, rank(FIRST, (20, 100, spin(BARRIER, "barrier"))), rank(FIRST, (96, 100, spin(BARRIER, "barrier")))
    )
    assert (waits(present=parts)[0, 1], waits(present=parts)[1, 1]) == ((80, 1, None), (4, None, None))


@pytest.fixture(scope="module")
def results():
    return once.results("symm")


def test_the_late_host_of_the_symmetric_memory_capture(results):
    """Rank 0's host is late; rank 1 spins in its barriers."""
    calls = results["call_waits"].to_frame()
    barriers = calls[calls["collective"] == "barrier"].groupby("rank")["wait_ns"].agg(["size", "sum"])
    assert barriers["size"].tolist() == [56, 56]
    assert barriers["sum"].tolist() == [229_437, 3_255_057]
    breakdown = results["breakdown"].to_frame()
    assert (breakdown["compute_ns"].max() / breakdown["compute_ns"].min()) < 1.03
    worst = results["stragglers"].to_frame().iloc[0]
    # Rank 1's host needs as long: it is no episode.
    assert (worst["rank"], worst["collective"], worst.isna()["cause"]) == (0, "barrier", True)


def test_its_peer_copies_are_of_the_collectives_that_launched_them(results):
    table = results["nccl"].to_frame().set_index(["rank", "collective", "dtype"]).sort_index()
    copies = table[table.index.get_level_values("dtype").isna()].groupby(level=["rank", "collective"])["total_ns"].sum()
    assert copies[0, "all_gather"] + copies[0, "reduce_scatter"] == 757_788
    sizes = table.loc[(0, "all_reduce", "BFloat16")]
    assert set(sizes["size_bytes"]) == {16 * 2_097_152, 8 * 16_777_216}
