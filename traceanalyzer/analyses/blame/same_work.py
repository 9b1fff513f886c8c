"""Whether a late rank does the same work as its peers, only slower, and which of it is slower."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.ran_names import Beside, RanNames
from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.blame.what_ran import KERNEL, OPERATOR

NAMED = 0.5
"""A name is said when it explains this much of an excess; so is that the same kernels take longer."""

_THROUGHOUT = 0.7
"""Part of the time in the same kernels in which they are slower: a slow GPU slows them all, or nearly all."""

_SLOWER = 0.2
"""How much slower, of what all together are: a GPU that is shared slows this kernel or that one more, step by step."""

_A_PART = 0.2
"""Of an excess: operators that hold less of it are not named among those that are slower."""

_OF_DATA = re.compile(
    r"group(ed)?_?(gemm|mm|matmul)|gemm_?grouped|GroupProblemShape|experts?(?![a-z])|moe|varlen|ragged|paged|decode",
    re.IGNORECASE,
)
"""Names of kernels and operators whose work depends on what they read (tokens of each expert, lengths), in any grid."""

_HAS_KNOWN_WORK = re.compile(r"aten::(?!\w*(embedding|index|scatter|nonzero|unique|sort|masked)).* of \[")
"""Operators whose shapes tell what there is to do: not where indices decide how often one place is written.

One without shapes among others that have them, such as an optimizer of another shard, may have more to do.
"""


def has_known_work(names: pd.Series) -> pd.Series:
    """Which names are of operators whose shapes tell what there is to do."""
    return names.isin({name for name in names.unique() if _HAS_KNOWN_WORK.match(name)})


def is_of_data(names: pd.Series) -> pd.Series:
    """Which names are of kernels and operators whose work depends on what they read."""
    return names.isin({name for name in names.unique() if _OF_DATA.search(name)})


def same_work(own: RanNames, beside: Beside, excess_ns: int) -> "Alike | None":
    """The kernels of which the rank and its peers run as many, of as many blocks and shapes; the most of the excess.

    None where neither shapes nor the many kernels that are slower tell that the work is the same: one kernel that alone
    takes longer may have more to do in as many blocks.
    """
    kernels = _alike(own, beside, KERNEL)
    if kernels.excess_ns < NAMED * excess_ns:
        return None
    has_shapes = any(SIZES in name for name in own.of_kind(OPERATOR).name)
    by_shape = _alike(own, beside, OPERATOR)
    if has_shapes and by_shape.excess_ns < NAMED * excess_ns:
        return None
    is_told = has_shapes and by_shape.of(_HAS_KNOWN_WORK).excess_ns >= NAMED * excess_ns
    return kernels if is_told or kernels.are_slower_throughout() else None


def slower_part(own: RanNames, beside: Beside, excess_ns: int) -> "Alike | None":
    """Of the operators that do the same work those few that are slower, where they hold most of the excess."""
    alike = _alike(own, beside, OPERATOR)
    alike = alike.at(alike.are_slower() & (alike.own_ns - alike.peers_ns >= _A_PART * excess_ns))
    return alike if alike.excess_ns >= NAMED * excess_ns else None


@dataclass(frozen=True, slots=True)
class Alike:
    """Names of which the rank has as many calls and blocks as its peers, and the time in each: its own, and theirs."""

    name: np.ndarray
    own_ns: np.ndarray
    peers_ns: np.ndarray

    @property
    def sums(self) -> tuple[float, float]:
        """All of the time: its own, and theirs."""
        return float(self.own_ns.sum()), float(self.peers_ns.sum())

    @property
    def excess_ns(self) -> float:
        """How much longer all together are."""
        own_ns, peers_ns = self.sums
        return own_ns - peers_ns

    def of(self, pattern: re.Pattern[str]) -> "Alike":
        """Those whose name begins with the pattern."""
        return self.at(np.array([pattern.match(name) is not None for name in self.name], dtype=bool))

    def at(self, held: np.ndarray) -> "Alike":
        """Those of a mask."""
        return Alike(self.name[held], self.own_ns[held], self.peers_ns[held])

    def are_slower(self) -> np.ndarray:
        """Mask of those that are slower, by a fifth of what all together are."""
        own_ns, peers_ns = self.sums
        mask: np.ndarray = (self.own_ns - self.peers_ns) * peers_ns >= _SLOWER * (own_ns - peers_ns) * self.peers_ns
        return mask

    def are_slower_throughout(self) -> bool:
        """Whether most of the time is in those that are slower."""
        return bool(self.peers_ns[self.are_slower()].sum() >= _THROUGHOUT * self.peers_ns.sum())


def _alike(own: RanNames, beside: Beside, what: str) -> Alike:
    """What of the rank's names may be the same work; names of what depends on the data are none of it."""
    held = own.of_kind(what)
    typical = beside.medians(what, held.name)
    same = (held.sums[:, 1:] == typical[:, 1:]).all(axis=1)
    same &= np.array([_OF_DATA.search(name) is None for name in held.name], dtype=bool)
    return Alike(held.name[same], held.sums[same, 0], typical[same, 0])
