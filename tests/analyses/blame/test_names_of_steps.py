"""Which name a rank's late steps have in common."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.blame.naming import _agreed, named
from traceanalyzer.analyses.blame.sizes import of_the_same_sizes

MM = ("operator", "aten::mm")
NONE = (None, None)


@pytest.mark.parametrize("part", ["compute_ns", "host_ns"])
@pytest.mark.parametrize(
    ("excess_ns", "expected"),
    [
        ((10, 11, 12, 10, 11), [NONE] * 5),
        ((10, 11, 12, 40, 41), [NONE, NONE, NONE, MM, MM]),  # of another size: another thing
    ],
)
def test_what_most_late_steps_have_no_name_for_has_none(part, excess_ns, expected):
    cells = pd.DataFrame({"rank": 4, "part": part, "excess_ns": excess_ns})
    assert _agreed(cells, [{}, {}, {}, {MM: 6.0}, {MM: 7.0}]) == expected


@pytest.mark.parametrize(("fits", "expected"), [(1, [NONE] * 4), (2, [NONE] * 4), (3, [NONE, MM, MM, MM])])
def test_what_as_many_late_steps_have_a_name_for_as_not_has_none(fits, expected):
    cells = pd.DataFrame({"rank": 4, "part": "compute_ns", "excess_ns": (10, 11, 12, 10)})
    assert _agreed(cells, [{MM: 6.0} if 4 - place <= fits else {} for place in range(4)]) == expected


@pytest.mark.parametrize(("in_part_ns", "name"), [(60, "spmm"), (100, None)])
def test_a_name_is_held_against_what_its_part_takes_longer(in_part_ns, name):
    """A rank needs 100 ns more, of which some are copies and loading: 40 ns more in one kernel of three."""
    taken = {"spmm": (80, 40), "gemm": (30, 20), "norm": (30, 20)}
    rows = [(rank, kernel, taken[kernel][rank < 2], 5 + rank) for rank in range(3) for kernel in taken]
    work = pd.DataFrame(rows, columns=["rank", "name", "total_ns", "blocks"]).assign(
        step=0, part="compute_ns", what="kernel", calls=1
    )
    cells = pd.DataFrame({"rank": [2], "step": 0, "part": "compute_ns", "excess_ns": 100, "in_part_ns": in_part_ns})
    late = pd.DataFrame({"rank": [0, 1, 2], "step": 0, "peers": "all"})
    assert named(cells, late, work)["name"].tolist() == [name]


@pytest.mark.parametrize(
    ("dense_ns", "expected"),
    [(130, (None, 130.0)), (100, ("grouped_gemm", None))],
    ids=["a slower GPU", "experts with more to do"],
)
def test_what_the_same_kernels_foretell_of_those_that_depend_on_data_is_a_slower_gpu(dense_ns, expected):
    taken = {"gemm": (dense_ns, 100), "grouped_gemm": (290, 230)}
    rows = [(rank, kernel, taken[kernel][rank < 2]) for rank in range(3) for kernel in taken]
    work = pd.DataFrame(rows, columns=["rank", "name", "total_ns"]).assign(
        step=0, part="compute_ns", what="kernel", calls=1, blocks=8
    )
    cells = pd.DataFrame({"rank": [2], "step": 0, "part": "compute_ns", "excess_ns": dense_ns - 100 + 60})
    late = pd.DataFrame({"rank": [0, 1, 2], "step": 0, "peers": "all"})
    found = named(cells, late, work).astype(object)
    own = found.where(found.notna(), None)[["name", "same_ns"]]
    assert own.iloc[0].tolist() == list(expected)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((2, 1, 3, 1, 2), 100.0), ((2, 1, 3, 1, 4), None)],
    ids=["one has its length", "nobody has"],
)
def test_whose_lengths_are_those_of_another_rank_is_held_against_that_one(lengths, expected):
    """Ranks with sequences of their own lengths; the last rank's GPU takes 1.6 times as long."""
    rows = [
        (rank, what, f"mm of [{length}]" if what == "operator" else f"gemm_{length}", 50 * length * (1.6 if rank == 4 else 1))
        for rank, length in enumerate(lengths) for what in ("operator", "kernel")
    ]  # fmt: skip
    work = pd.DataFrame(rows, columns=["rank", "what", "name", "total_ns"]).assign(
        step=0, part="compute_ns", calls=1, blocks=8
    )
    cells = pd.DataFrame({"rank": [4], "step": 0, "part": "compute_ns", "excess_ns": 60})
    late = pd.DataFrame({"rank": range(5), "step": 0, "peers": "all"})
    assert [None if pd.isna(own) else own for own in named(cells, late, work)["peers_same_ns"]] == [expected]


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [(["a", "b"], [], [1]), (["a", "b"], ["x"], [1]), (["a"], ["x"], [1, 2, 3]), ([], [], [1, 2, 3])],
    ids=["sizes of two ranks", "most of them", "half of them", "no sizes"],
)
def test_ranks_of_the_same_sizes_speak_where_most_others_hardly_ran_any(own, shared, expected):
    names = [(name, 1.0) for name in own], [(name, 1.0) for name in shared]
    ran = {rank: frozenset([*(names[0] if rank < 2 else []), *names[1]]) for rank in range(4)}
    assert of_the_same_sizes(np.arange(1, 4), 0, ran).tolist() == expected


@pytest.mark.parametrize(
    ("sizes", "expected"), [((" of [4]", " of [1]"), None), (("", ""), 350.0)], ids=["other sizes", "sizes not known"]
)
def test_as_many_blocks_with_more_to_do_in_each_are_no_slower_gpu(sizes, expected):
    """Split products have as many blocks for four times the rows; a function of each number has four times as many."""
    taken = {"split": ((350, 8), (100, 8)), "gelu": ((400, 40), (100, 10))}
    rows = [
        (rank, what, name + sizes[rank < 2] * (what == "operator"), *taken[name][rank < 2])
        for rank in range(3) for name in taken for what in ("operator", "kernel")
    ]  # fmt: skip
    work = pd.DataFrame(rows, columns=["rank", "what", "name", "total_ns", "blocks"]).assign(
        step=0, part="compute_ns", calls=1
    )
    cells = pd.DataFrame({"rank": [2], "step": 0, "part": "compute_ns", "excess_ns": 550})
    late = pd.DataFrame({"rank": [0, 1, 2], "step": 0, "peers": "all"})
    assert [None if pd.isna(own) else own for own in named(cells, late, work)["same_ns"]] == [expected]
