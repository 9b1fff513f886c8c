"""Rows of two lists that belong together by a key and the position among equal keys."""

import numpy as np


def equal_keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Positions whose key and position among equal keys are the same."""
    numbered = [_numbered(keys) for keys in (left, right)]
    width = max(len(left), len(right), 1)
    codes = [np.searchsorted(np.unique(np.concatenate([left, right])), keys) for keys in (left, right)]
    _, first, second = np.intersect1d(
        codes[0] * width + numbered[0], codes[1] * width + numbered[1], return_indices=True
    )
    pairs = np.stack([first, second], axis=1).astype(np.int64)
    return pairs[np.argsort(first, kind="stable")]


def _numbered(keys: np.ndarray) -> np.ndarray:
    """Position of each element among those with the same key."""
    order = np.argsort(keys, kind="stable")
    held = keys[order]
    is_first = np.append(True, held[1:] != held[:-1]) if len(held) else np.empty(0, dtype=bool)
    begins = np.maximum.accumulate(np.where(is_first, np.arange(len(held)), 0))
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = np.arange(len(keys)) - begins
    return number
