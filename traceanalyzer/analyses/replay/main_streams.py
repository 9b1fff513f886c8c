"""On which stream each rank's steps begin: the one that computes most, the same on all ranks that compute on it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


def main_streams(pieces: Mapping[int, Piece]) -> dict[int, int]:
    """Of each rank its stream: the job's, where the rank computes on it in each of its steps, else its own.

    The job's stream is the one whose (lower) median of compute over ranks is longest. A late rank may compute most on a
    stream on which all prepare the next batch: its steps would begin at other moments than theirs.
    """
    each = {rank: _compute_ns(piece) for rank, piece in pieces.items()}
    common = _of_job(pd.DataFrame(each).fillna(0)) if each else NONE
    return {
        rank: common if _has_in_each_step(pieces[rank], common) else int(own.idxmax()) for rank, own in each.items()
    }


def _of_job(compute: pd.DataFrame) -> int:
    """`NONE` where most ranks have no stream in common that computes."""
    median = np.sort(compute.to_numpy(), axis=1)[:, (compute.shape[1] - 1) // 2]
    return int(compute.index[median.argmax()]) if median.any() else NONE


def _compute_ns(piece: Piece) -> pd.Series:
    """Time that kernels take, by stream in the order of the piece."""
    codes, streams = pd.factorize(array_of(piece.ops, "stream"))
    compute = np.where(is_any(piece.ops["kind"], "compute"), array_of(piece.ops, "duration_ns"), 0)
    return pd.Series(np.bincount(codes, compute, len(streams)), index=streams)


def _has_in_each_step(piece: Piece, stream: int) -> bool:
    step = array_of(piece.ops, "step")
    is_own = (array_of(piece.ops, "stream") == stream) & is_any(piece.ops["kind"], "compute")
    return bool(is_own.any()) and len(np.setdiff1d(step[step != NONE], step[is_own])) == 0
