"""Which line of the user's own code each operator comes from, when Python stacks were recorded."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.nesting import Nesting
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

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
    names = frames["name"].cat.categories
    wanted = [name for name in names if _LINE.match(name) and not _LIBRARY.search(name)]
    own = frames[frames["name"].isin(wanted)].reset_index(drop=True)
    around = Nesting.of(own).innermost_at(array_of(ops, "start_ns"), array_of(ops, "thread"))
    codes = np.append(own["name"].cat.codes.to_numpy(), NONE)[tree.inherited(around)]
    return pd.Categorical.from_codes(codes, dtype=own["name"].dtype)
