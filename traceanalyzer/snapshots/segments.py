"""What an allocator held when a snapshot was written: its segments and the blocks in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.snapshots.stacks import Stacks

MOST_SIZE_BYTES = 1 << 50
"""Beyond all GPUs: what is larger is damage, and sums of it would not be exact."""


def sizes_of(told: Sequence[int] | np.ndarray) -> np.ndarray:
    """Sizes as integers.

    Raises:
        ValueError: one is negative, or more than any GPU has.
    """
    sizes = np.array(told, "int64")
    if (odd := sizes[(sizes < 0) | (sizes > MOST_SIZE_BYTES)]).size:
        raise ValueError(f"a size of {odd[0]}")
    return sizes


def state_of(segments: Sequence[Mapping[str, Any]], stacks: Stacks) -> dict[str, pd.DataFrame]:
    """Segments and blocks at the time of the snapshot."""
    blocks = [(number, block) for number, segment in enumerate(segments) for block in segment["blocks"]]
    starts = _addresses(segments)
    return {
        "segments": pd.DataFrame(
            {
                "addr": pd.Series([segment["address"] for segment in segments], dtype="int64"),
                "size_bytes": sizes_of([segment["total_size"] for segment in segments]),
                "type": pd.Series([segment.get("segment_type", "") for segment in segments], dtype="str"),
                "stream": pd.Series([segment.get("stream", 0) for segment in segments], dtype="int64"),
                "is_expandable": pd.Series([bool(segment.get("is_expandable")) for segment in segments], dtype="bool"),
                "is_private": pd.Series([_is_private(segment) for segment in segments], dtype="bool"),
            }
        ),
        "blocks": pd.DataFrame(
            {
                "segment": pd.Series([number for number, _ in blocks], dtype="int64"),
                "addr": pd.Series(starts, dtype="int64"),
                "size_bytes": sizes_of([block["size"] for _, block in blocks]),
                "requested_bytes": sizes_of([_requested(block) for _, block in blocks]),
                "state": pd.Series([block["state"] for _, block in blocks], dtype="str"),
                "stack": pd.Series([stacks.number(_frames(block)) for _, block in blocks], dtype="int32"),
            }
        ),
    }


def _is_private(segment: Mapping[str, Any]) -> bool:
    """Whether it is of a pool of its own, as CUDA graphs have: others are not served from it."""
    return tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)


def _addresses(segments: Sequence[Mapping[str, Any]]) -> list[int]:
    """Blocks lie behind each other; versions before 2.1 do not print their addresses."""
    found = []
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            found.append(block.get("address", at))
            at += block["size"]
    return found


def _requested(block: Mapping[str, Any]) -> int:
    """Bytes that were asked for; the block's size where an older version does not tell."""
    history = block.get("history") or [{}]
    return int(block.get("requested_size", history[0].get("real_size", block["size"])))


def _frames(block: Mapping[str, Any]) -> Any:
    history = block.get("history") or [{}]
    return block.get("frames", history[0].get("frames"))
