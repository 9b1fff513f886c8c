"""Which model FLOPs a compiled backward pass repeats of its forward pass, as a checkpointed one does."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named_so
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of

_NODE = "CompiledFunctionBackward"


def compiled_recompute(
    trace: RankTrace, tree: OperatorTree, operators: np.ndarray, model_flops: np.ndarray
) -> pd.DataFrame:
    """Rows `row` (in `host_ops`, the autograd node) and `flops`: what exceeds twice the forward pass's FLOPs.

    A compiled graph records no autograd, so that its operators do not say what they repeat. But a product, an
    attention or a convolution has twice its own FLOPs of gradients at most: a compiled backward pass with more than
    twice the model FLOPs of the compiled forward pass that it belongs to repeats the difference. That is all of it
    where every operand needs a gradient, else a part.

    Args:
        trace: of a rank.
        tree: of its operators.
        operators: rows in `host_ops` of those with model FLOPs.
        model_flops: of each of them.
    """
    rows = _outermost_nodes(trace, tree)
    own = np.zeros(len(trace.host_ops), dtype=np.int64)
    np.add.at(own, operators, model_flops)
    total = tree.nesting.summed_up(own)
    return table_of({"row": rows, "flops": np.maximum(total[rows] - 2 * total[tree.forward[rows]], 0)})


def _outermost_nodes(trace: RankTrace, tree: OperatorTree) -> np.ndarray:
    compiled = rows_named_so(trace.host_ops, lambda name: name.endswith(_NODE))
    if not compiled.any():
        return np.empty(0, dtype=np.int64)
    # A node is recorded twice, as the engine's call and as the function inside it.
    is_inside = tree.nesting.handed_down(compiled, including_self=False) != NONE
    return np.flatnonzero(compiled & ~is_inside & (tree.forward != NONE))
