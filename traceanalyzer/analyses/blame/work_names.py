"""Names of what steps consist of: numbers and texts, operators with their shapes."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import column_of, picked

_PRODUCT = re.compile(r"mm(_out)?$|matmul|linear|conv")
_MOST_SHAPES = 3

OF_DATA = re.compile(
    r"group(ed)?_?(gemm|mm|matmul)|gemm_?grouped|GroupProblemShape|experts?(?![a-z])|moe|varlen|ragged|paged|decode(?!r)",
    re.IGNORECASE,
)
"""Names of kernels and operators whose work depends on what they read (tokens of each expert, lengths), in any grid."""

HAS_KNOWN_WORK = re.compile(r"aten::(?!\w*(embedding|index|scatter|nonzero|unique|sort|masked)).* of \[")
"""Operators whose shapes tell what there is to do: not where indices decide how often one place is written.

One without shapes among others that have them, such as an optimizer of another shard, may have more to do.
"""


class Names(NamedTuple):
    """Names by row: the position of each in `texts`, which are in the order of their letters; -1 without one."""

    codes: np.ndarray
    texts: list[str]

    def take(self, rows: np.ndarray) -> "Names":
        """These rows."""
        return Names(self.codes[rows], self.texts)


def names_of(events: pd.DataFrame) -> Names:
    """What a table's events are called."""
    names: Any = column_of(events, "name")
    return as_names(names.categories.tolist(), names.codes)


def as_names(texts: Sequence[str], rows: np.ndarray) -> Names:
    """Texts by their positions."""
    names = sorted(set(texts))
    place = {text: number for number, text in enumerate(names)}
    return Names(np.array([*(place[text] for text in texts), NONE], dtype=np.int64)[rows], names)


def called(host_ops: pd.DataFrame, rows: np.ndarray) -> Names:
    """`aten::mm of [8192, 8192] × [8192, 8192]`, by row of the operator."""
    keys = ["name", "shapes"]
    groups = Groups.of(picked(host_ops, rows, keys), keys, with_absent=True)
    texts = [with_shapes(name, shapes) for name, shapes in zip(*groups.keys.values(), strict=True)]
    return as_names(texts, groups.of_row)


@lru_cache(16_384)
def with_shapes(name: str, shapes: object) -> str:
    """`aten::mm of [8, 4] × [4, 2]`; of what is no product its first inputs of unlike shapes, empty ones aside."""
    try:
        told = json.loads(shapes) if isinstance(shapes, str) else []
    except ValueError:
        told = []
    known = [shape for shape in told if shape and isinstance(shape, list)] if isinstance(told, list) else []
    factors = [shape for shape in known if len(shape) > 1]
    if factors and _PRODUCT.search(name):
        return f"{name} of {' × '.join(map(str, factors))}"
    shown = list(dict.fromkeys(str(shape) for shape in known if 0 not in shape))[:_MOST_SHAPES]
    return f"{name} of {', '.join(shown)}" if shown else str(name)


def has_known_work(names: pd.Series) -> pd.Series:
    """Which names are of operators whose shapes tell what there is to do."""
    return names.isin({name for name in names.unique() if HAS_KNOWN_WORK.match(name)})


def is_of_data(names: pd.Series) -> pd.Series:
    """Which names are of kernels and operators whose work depends on what they read."""
    return names.isin({name for name in names.unique() if OF_DATA.search(name)})
