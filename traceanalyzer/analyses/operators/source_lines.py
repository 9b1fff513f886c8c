"""Which line of the user's own code each operator comes from, when Python stacks were recorded."""

import re
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.nesting import Nesting
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import mask_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked

_LINE = re.compile(r"\S.*\(\d+\): ")

_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages)/|^torch/|^nn\.Module: |^<|(^|/)lib/python3|^(threading|contextlib|functools"
    r"|_?weakref\w*|copy|abc|typing|enum|importlib|runpy|inspect|logging|os|socket|selectors|queue|tempfile)\b.*\.py\("
)
"""Frames of PyTorch, of installed packages and of Python itself."""


def source_lines(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """For each operator the innermost frame of the user's code around it: `train.py(12): forward`.

    A frame's line is the one where its function begins, as the profiler records it. A backward operator has the
    line of the forward operator that created its autograd node. Absent without stacks.
    """
    frames, ops = trace.frames, trace.host_ops
    own = picked(frames, mask_of(column_of(frames, "name"), _is_own))
    names: Any = column_of(own, "name")
    if not len(own):
        return pd.Categorical.from_codes(np.full(len(ops), NONE), dtype=names.dtype)
    around = Nesting.of(own).innermost_at(array_of(ops, "start_ns"), array_of(ops, "thread"))
    return pd.Categorical.from_codes(np.append(names.codes, NONE)[tree.inherited(around)], dtype=names.dtype)


def _is_own(frame: str) -> bool:
    return bool(_LINE.match(frame)) and not _LIBRARY.search(frame)
