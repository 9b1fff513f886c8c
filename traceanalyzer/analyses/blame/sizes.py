"""Sizes of operators' inputs in their names: some ranks' captures have them (`record_shapes`), others may not."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.what_ran import OPERATOR

Named = tuple[str | None, str | None]

Ran = frozenset[tuple[str, float]]
"""Names of operators with sizes, and how often each ran."""

SIZES = " of ["
"""What stands between an operator's name and the sizes of its inputs."""


def ranks_with_sizes(work: pd.DataFrame) -> frozenset[int]:
    """The ranks any of whose operators have sizes."""
    own = work[(work["what"] == OPERATOR) & work["name"].astype("str").str.contains(SIZES, regex=False)]
    return frozenset(int(rank) for rank in own["rank"].unique())


def recorded_alike(others: np.ndarray, rank: int, sized: frozenset[int]) -> tuple[np.ndarray, bool]:
    """Of the other ranks those whose operators have sizes as the rank's have, or have none as its have none.

    All of them, and false, where there are none such: operators cannot be held against each other then.
    """
    alike = others[[(int(other) in sized) == (rank in sized) for other in others]]
    return (alike, True) if len(alike) or not len(others) else (others, False)


def of_the_same_sizes(others: np.ndarray, rank: int, ran: Mapping[int, Ran]) -> np.ndarray:
    """Of the other ranks those that `ran` the same operators of the same sizes as often, where most hardly ran any.

    Where every replica has sequences of its own lengths the ranks of a tensor group share them: these tell what such
    work takes. All others where there are none.
    """
    own = ran.get(rank, frozenset())
    beside = [ran.get(int(other), frozenset()) for other in others]
    common = sum(2 * sum(each in other for other in beside) > len(beside) for each in own)
    alike = others[[other == own for other in beside]]
    return alike if 2 * common < len(own) and len(alike) else others


def without_operators(work: pd.DataFrame) -> pd.DataFrame:
    """The table, row by row, with operators as nothing that a name is told of: kernels tell then."""
    return work.assign(what=work["what"].astype("object").where(work["what"] != OPERATOR, ""))


def of_all_sizes(chosen: Mapping[int, Named]) -> dict[int, Named]:
    """The operator without its sizes where cells name it with different ones: lengths differ from step to step."""
    stems = {row: name.partition(SIZES)[0] for row, (what, name) in chosen.items() if what == OPERATOR and name}
    sizes = {stem: {chosen[row][1] for row, own in stems.items() if own == stem} for stem in stems.values()}
    return {row: (OPERATOR, stem) for row, stem in stems.items() if len(sizes[stem]) > 1}
