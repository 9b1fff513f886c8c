"""What a rank's step needs more than its peers'."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.blame.episode_rows import apart_ns, is_of_every_host
from traceanalyzer.analyses.blame.jitter import without_hardly_any
from traceanalyzer.analyses.blame.lateness import _are_late, cells, with_excess
from traceanalyzer.analyses.blame.meetings import awaited_in
from traceanalyzer.analyses.blame.sizes import of_all_sizes, ranks_with_sizes, recorded_alike
from traceanalyzer.analyses.blame.stage_speeds import with_slower_ns
from traceanalyzer.analyses.blame.step_needs import PARTS
from traceanalyzer.analyses.blame.what_ran import KERNEL, OPERATOR
from traceanalyzer.analyses.blame.work_names import with_shapes
from traceanalyzer.model.tables import columns_of

MS = 1_000_000


def needs(host_ns, needed_ns, wait_ns=0):
    """Steps of some ranks, of 100 ns each: idle for their hosts, and what launching takes these."""
    rows = [
        {"rank": rank, "step": step, "host_ns": host_ns[rank][step], "needed_host_ns": needed_ns[rank][step]}
        for rank in range(len(host_ns))
        for step in range(len(host_ns[rank]))
    ]
    table = pd.DataFrame(rows).assign(peers="all", is_partial=False, slower_transfer_ns=0, exposed_unmatched_ns=0,
                                      clock_jump_ns=pd.NA, copy_beside_wait_ns=0)  # fmt: skip
    table = table.assign(begin_ns=table["step"] * 100, end_ns=table["step"] * 100 + 100)
    table = table.assign(exposed_wait_ns=wait_ns)
    rest = {part: 0 for part in PARTS if part != "host_ns"}
    loading = pd.array([pd.NA] * len(table), dtype="Int64")
    return table.assign(**rest, operations=100, loading_ns=loading).astype({"needed_host_ns": "Int64"})


@pytest.mark.parametrize(("loading", "late"), [((60, 60), []), ((30, 60), [30]), ((None, None), [30])],
                         ids=["alike", "longer", "not known"])  # fmt: skip
def test_who_idles_longer_for_data_that_is_loaded_as_fast_is_not_late_by_it(loading, late):
    """A queue that is longer hides more of the same loading."""
    table = needs([[0] * 4] * 2, [[80] * 4] * 2, wait_ns=30 * MS)
    table = table.assign(**{name: table[name] * MS for name in ("begin_ns", "end_ns", "needed_host_ns")})
    own = table["rank"].map({0: 10 * MS, 1: 40 * MS})
    loaded = table["rank"].map({rank: None if each is None else each * MS for rank, each in enumerate(loading)})
    found = cells(with_excess(table.assign(data_ns=own, loading_ns=loaded.astype("Int64"))))
    assert found.loc[found["part"] == "data_ns", "excess_ns"].unique().tolist() == [each * MS for each in late]


@pytest.mark.parametrize(
    ("waited", "seen"),
    [([0, 5, 0, 0, 7], [1, 4, 4, 4]), ([5, 5, 5, 5, 5], [1, 2, 3, 4]), ([0, 0, 0, 0, 0], [])],
    ids=["averaged in some steps", "in every step", "never"],
)
def test_a_late_rank_is_met_in_the_next_step_that_communicates(waited, seen):
    late = needs([[0] * 5, [0] * 5], [[0] * 5, [0] * 5]).assign(exposed_wait_ns=[0] * 5 + waited)
    assert awaited_in(late).dropna().tolist() == seen


@pytest.mark.parametrize(
    ("own", "slower_ns"),
    [
        ({"aten::mm of [8, 8]": (90, 3, 72), "gemm": (90, 3, 72)}, 30),
        ({"aten::mm of [8, 8]": (90, 4, 96), "gemm": (90, 4, 96)}, 0),
        ({"aten::mm of [8, 8]": (90, 3, 36), "gemm": (90, 3, 36)}, 0),
        ({"aten::mm of [8, 16]": (90, 3, 72), "gemm": (90, 3, 72)}, 0),
        ({"aten::mm of [8, 8]": (90, 3, 72), "grouped_gemm": (90, 3, 72)}, 0),
        ({"aten::embedding of [8, 8]": (90, 3, 72), "gemm": (90, 3, 72)}, 0),
    ],
    ids=["slower", "more of them", "of other grids", "of other sizes", "by data", "by indices"],
)
def test_a_stage_is_slower_by_what_the_same_work_takes_it_more(own, slower_ns):
    """Of time, calls and blocks; the other stages take 60 ns for three calls of 72 blocks."""
    stages = [dict.fromkeys(own, (60, 3, 72)), dict.fromkeys(own, (60, 3, 72)), own]
    if "aten::mm of [8, 16]" in own:
        stages[:2] = [{"aten::mm of [8, 8]": (60, 3, 72), "gemm": (60, 3, 72)}] * 2
    work = pd.DataFrame(
        [
            {"rank": rank, "step": 0, "part": "compute_ns", "what": OPERATOR if "::" in name else KERNEL, "name": name,
             "total_ns": total_ns, "calls": calls, "blocks": blocks}
            for rank, held in enumerate(stages) for name, (total_ns, calls, blocks) in held.items()
        ]
    )  # fmt: skip
    steps = pd.DataFrame({"rank": [0, 1, 2], "step": [0, 0, 0], "peers": ["stage 0", "stage 1", "stage 2"]})
    assert with_slower_ns(steps, work)["slower_ns"].tolist() == [0, 0, slower_ns]
    assert with_slower_ns(steps.assign(peers="all"), work)["slower_ns"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("host_ns", "needed_ns", "excess_ns"),
    [
        ([[50], [0]], [[60], [34]], [26, -50]),
        ([[50], [0]], [[60], [60]], [0, -50]),
        ([[50], [0]], [[60], [70]], [0, -50]),
        ([[20], [0]], [[60], [10]], [20, -20]),
        ([[50], [0]], [[None], [None]], [50, -50]),
        # the GPU idles a step later
        ([[0, 50], [0, 0]], [[90, 30], [30, 30]], [0, 50, 0, -50]),
        # of what the host took more in the step before only what no GPU has idled for
        ([[50, 50], [0, 0]], [[90, 30], [30, 30]], [50, 10, -50, -50]),
        ([[50, 50], [0, 0]], [[80, 30], [30, 70]], [50, 0, -50, -50]),
    ],
    ids=[
        "partly",
        "as slow behind a wait",
        "slower behind a wait",
        "wholly",
        "not known",
        "the step before",
        "the rest of the step before",
        "nothing of the step before",
    ],
)
def test_a_host_is_late_by_what_launching_takes_it_more(host_ns, needed_ns, excess_ns):
    assert with_excess(needs(host_ns, needed_ns))["excess_ns"].tolist() == excess_ns


@pytest.mark.parametrize(
    ("host_ms", "excess_ms"),
    [([50, 0, 50, 50, 0], [50, -50, 50, 50, -50]), ([50, 0, 0], [50, -25, -25]), ([50, 50, 0], [50, 50, -50])],
    ids=["three of five", "one of three", "two of three"],
)
def test_late_ranks_are_held_against_those_in_time(host_ms, excess_ms):
    ms = 1_000_000
    two_steps = [[own * ms] * 2 for own in host_ms]
    table = needs(two_steps, two_steps, 40 * ms).assign(begin_ns=0, end_ns=100 * ms)
    found = with_excess(table).groupby("rank")["excess_ns"].first() / ms
    assert found.tolist() == excess_ms


@pytest.mark.parametrize(
    ("late_ms", "other_ms", "late_steps"),
    [
        # a GPU that slows down: each step later than the one before
        ([9, 11, 15, 19], [0, 0, 0, 0], {1: 4}),
        # in turn, as much: no rank is late on the whole
        ([9, 0, 15, 0], [0, 11, 0, 9], {}),
        ([9, 11], [0, 0], {1: 2}),
        # once below the limit of 2 ms: not all but that one
        ([3, 3, 4, 3, 3, 4, 3, 1], [0] * 8, {1: 8}),
        # once hardly anything of what it needs in the others
        ([18, 20, 19, 20, 1], [0] * 5, {1: 4}),
    ],
    ids=["ever later", "in turn", "two steps", "near the limit", "hardly once"],
)
def test_a_rank_that_is_late_in_most_steps_is_late_in_each(late_ms, other_ms, late_steps):
    ms = 1_000_000
    host = [[own * ms for own in rank] for rank in (other_ms, late_ms)]
    table = needs(host, host, 20 * ms).assign(begin_ns=0, end_ns=100 * ms)
    found = with_excess(table)
    assert found[_are_late(columns_of(found))].groupby("rank").size().to_dict() == late_steps


@pytest.mark.parametrize(
    ("wait_ms", "is_late"),
    [
        ([[0, 0], [0, 0]], [False, False]),
        ([[30, 30], [0, 0]], [True, True]),
        ([[0, 0], [30, 30]], [False, False]),
        ([[0, 30], [0, 0]], [True, True]),
        ([[30, 0], [0, 0]], [True, False]),
        ([[2, 2], [0, 0]], [False, False]),
    ],
    ids=["nobody waits", "the other waits", "itself waits", "in the next step", "in the first", "hardly"],
)
def test_no_one_is_late_for_whom_nobody_waits(wait_ms, is_late):
    """Rank 1 computes 20 ms longer in each of two steps of 300 ms; half of the least that is told is 3 ms."""
    table = needs([[0, 0]] * 2, [[None, None]] * 2).assign(begin_ns=0, end_ns=300 * MS)
    table = table.assign(
        compute_ns=[0, 0, 20 * MS, 20 * MS], exposed_wait_ns=[own * MS for rank in wait_ms for own in rank]
    )
    found = with_excess(table)
    assert _are_late(columns_of(found)).tolist() == [False, False, *is_late]


@pytest.mark.parametrize(("wait_ms", "parts"), [(30, ["unknown_ns"]), (9, [])], ids=["seen", "hardly seen"])
def test_idle_time_without_a_reason_is_lateness_where_half_of_it_is_seen_in_waits(wait_ms, parts):
    table = needs([[0]] * 2, [[None]] * 2, wait_ns=wait_ms * MS).assign(end_ns=300 * MS, unknown_ns=[0, 20 * MS])
    assert cells(with_excess(table))["part"].tolist() == parts


def test_what_a_gpu_idles_for_its_host_while_the_other_waits_is_no_jitter():
    """Two steps in which one host takes 22 and 27 ms more, while the other GPU waits and does not idle."""
    host_ms, needed_ms = [[62, 67], [12, 0]], [[86, 85], [64, 58]]
    host, needed = ([[own * MS for own in rank] for rank in ms] for ms in (host_ms, needed_ms))
    found = with_excess(needs(host, needed, 50 * MS).assign(begin_ns=0, end_ns=86 * MS))
    assert found[_are_late(columns_of(found))].groupby("rank").size().to_dict() == {0: 2}


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::mm", "[[8,4],[4,2]]", "aten::mm of [8, 4] × [4, 2]"),
        ("aten::addmm", "[[2],[8,4],[4,2],[],[]]", "aten::addmm of [8, 4] × [4, 2]"),
        ("aten::_embedding_bag_dense_backward", "[[8,4],[99],[99],[8],[0],[],[]]",
         "aten::_embedding_bag_dense_backward of [8, 4], [99], [8]"),
        ("aten::native_layer_norm", "[[8,4],[],[4],[4],[]]", "aten::native_layer_norm of [8, 4], [4]"),
        ("aten::mm", None, "aten::mm"),
    ],
)  # fmt: skip
def test_only_products_multiply_their_inputs_sizes(name, shapes, expected):
    assert with_shapes(name, shapes) == expected


def test_an_operator_of_other_sizes_in_each_step_is_one_name():
    mm, add = ((OPERATOR, f"aten::{name} of [{size}, 8]") for name, size in (("mm", 4), ("add", 4)))
    other = (OPERATOR, "aten::mm of [6, 8]")
    assert of_all_sizes({0: mm, 3: other, 5: add}) == {0: (OPERATOR, "aten::mm"), 3: (OPERATOR, "aten::mm")}
    assert of_all_sizes({0: mm, 1: mm, 2: (None, None)}) == {}


@pytest.mark.parametrize(("beside_ms", "is_mended_with_it"), [((2, 2, 2, 2), True), ((2, -2, 2, -2), False)])
def test_what_is_longer_now_and_shorter_then_is_not_mended_with_the_rest(beside_ms, is_mended_with_it):
    late = pd.DataFrame(
        {"peers": "all", "rank": [0, 1] * 4, "step": [0, 0, 1, 1, 2, 2, 3, 3], "begin_ns": 0, "end_ns": 100 * MS}
    ).assign(operations=100, compute_ns=0, transfer_ns=0)
    late[["excess_ns", "exposed_wait_ns", "exposed_unmatched_ns"]] = [[30 * MS, 0, 0], [0, 30 * MS, 0]] * 4
    late[[f"{part}_excess" for part in PARTS]] = 0.0
    late["data_ns_excess"] = [30.0 * MS, 0.0] * 4
    late["compute_ns_excess"] = [value * MS for one in beside_ms for value in (float(one), 0.0)]
    found = cells(late)
    assert list(found["part"]) == ["data_ns"] * 4
    assert any("compute_ns" in beside for beside in found["beside"]) is is_mended_with_it


@pytest.mark.parametrize(
    ("last_ms", "late"),
    [((40, 20), []), ((60, 40), [(0, 3)]), ((65, 20), [(0, 3)])],
    ids=["the other computes less", "it computes more", "both"],
)
def test_a_rank_that_computes_as_ever_is_not_late_where_another_has_less_to_do(last_ms, late):
    table = needs([[0] * 4] * 2, [[0] * 4] * 2, wait_ns=20 * MS).assign(end_ns=100 * MS)
    compute_ns = [40 * MS] * 3 + [last_ms[0] * MS] + [40 * MS] * 3 + [last_ms[1] * MS]
    found = cells(with_excess(table.assign(compute_ns=compute_ns)))
    assert list(zip(found["rank"], found["step"], strict=True)) == late


@pytest.mark.parametrize(
    ("host_ms", "late"),
    [([25, 0, 0, 0, 0, 60], [0, 5]), ([25, 14, 3, 0, 0, 60], []), ([0, 0, 0, 0, 0, 0.5], [])],
    ids=["two of three stages", "every stage differs", "too little"],
)
def test_one_step_of_stages_that_two_ranks_share_tells_jitter_once_a_pair(host_ms, late):
    host_ns = [[round(own * MS)] for own in host_ms]
    table = needs(host_ns, host_ns, wait_ns=60 * MS).assign(end_ns=100 * MS)
    table = table.assign(peers="stage " + (table["rank"] % 3).astype("str"))
    held = with_excess(table)
    assert held.loc[_are_late(columns_of(held)), "rank"].tolist() == late


def test_ranks_are_held_against_those_whose_operators_have_sizes_as_well():
    names = {0: "aten::mm of [8, 8]", 1: "aten::mm of [8, 8]", 2: "aten::mm", 3: "aten::mm"}
    rows = [{"rank": rank, "what": OPERATOR, "name": name} for rank, name in names.items()]
    sized = ranks_with_sizes(pd.DataFrame(rows))
    assert sized == {0, 1}
    others, is_alike = recorded_alike(np.array([0, 2, 3]), 1, sized)
    assert (others.tolist(), is_alike) == ([0], True)
    others, is_alike = recorded_alike(np.array([2, 3]), 1, sized)
    assert (others.tolist(), is_alike) == ([2, 3], False)


@pytest.mark.parametrize(
    ("operations", "is_late"),
    [([100] * 4, False), ([114] * 4, False), ([130] * 4, True), ([90, 190, 60, 160], False)],
    ids=["as many", "hardly more", "more", "more by chance"],
)
def test_a_rank_that_launches_more_is_late_by_more_than_chance(operations, is_late):
    late_ms = [10, 24, 5, 20]
    table = needs([[20 * MS] * 4, [round((20 + own) * MS) for own in late_ms]], [[None] * 4] * 2, wait_ns=30 * MS)
    table = table.assign(end_ns=table["begin_ns"] + 70 * MS)
    table.loc[table["rank"] == 1, "operations"] = operations
    held = with_excess(table)
    assert bool(_are_late(columns_of(held))[held["rank"] == 1].all()) is is_late


@pytest.mark.parametrize(
    ("others", "apart"), [([100], 173), ([100] * 3, 132), ([100] * 7, 120), ([100] * 31, 110), ([80, 100, 125], 192)]
)
def test_few_hosts_tell_little_of_how_hosts_differ(others, apart):
    assert apart_ns(pd.Series(others, dtype="float64")) == pytest.approx(apart, abs=0.6)


@pytest.mark.parametrize(("steps", "times"), [(1, 1.728), (4, 1.901), (100, 2.282)])
def test_a_host_may_be_late_by_chance_in_each_of_some_steps(steps, times):
    assert apart_ns(pd.Series([1000.0]), steps) / 1000 == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize(
    ("name", "own_ms", "is_every_hosts"),
    [
        (None, 110, True),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 110, True),
        ("Optimizer.step#AdamW.step", 110, True),
        ("Optimizer.step#AdamW.step", 150, False),
        ("gc.collect", 110, False),
    ],
)
def test_what_every_host_is_in_is_no_name_for_one_that_is_no_slower_than_hosts_are(name, own_ms, is_every_hosts):
    row = {"cause": "host", "name": name, "own_host_ns": own_ms * MS, "apart_host_ns": 145 * MS}
    assert is_of_every_host(row) is is_every_hosts


def test_a_step_with_hardly_any_of_a_lateness_is_none_of_its_steps():
    """A tenth of the usual one of that part is some of it; of another part it is another lateness."""
    found = pd.DataFrame({
        "rank": [6, 6, 6, 6, 6], "step": [0, 1, 3, 4, 0], "part": ["host_ns"] * 4 + ["data_ns"],
        "excess_ns": [160_000, 10_000_000, 13_000_000, 1_200_000, 150_000],
    })  # fmt: skip
    assert without_hardly_any(found)[["step", "part"]].to_numpy().tolist() == [
        [1, "host_ns"], [3, "host_ns"], [4, "host_ns"], [0, "data_ns"],
    ]  # fmt: skip


def test_half_of_the_steps_are_not_most_of_them():
    """A rank that needs more in every second step is not late in the others by a little; in most steps it may be."""

    def late_in(more):
        each = [[0, 2, 0, 1, 2, 0, 1, 0], [1, 0, 2, 0, 0, 2, 0, 1], more, [2, 0, 1, 1, 0, 1, 2, 0]]
        table = with_excess(needs(each, each, wait_ns=30))
        table = table.assign(begin_ns=table["step"] * 110 * MS, end_ns=(table["step"] + 1) * 110 * MS)
        table = table.assign(excess_ns=table["excess_ns"] * MS, exposed_wait_ns=30 * MS)
        return table.loc[_are_late(columns_of(table)), "step"].tolist()

    assert late_in([20, 2, 20, 2, 20, 2, 20, 2]) == [0, 2, 4, 6]
    assert late_in([20, 2, 20, 2, 20, 2, 20, 20]) == [0, 1, 2, 4, 6, 7]
