"""Modules and ranges that are one thing under another name: `layers.*` of the one run, `blocks.*` of the other."""

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.diff.instance_numbers import PATHS
from traceanalyzer.diff.moved import WHY


def called_alike(base: pd.DataFrame, other: pd.DataFrame, keys: tuple[str, ...]) -> list[pd.DataFrame]:
    """Both tables, the other's with the base's names where a part of a path was renamed, and `WHY` on those rows.

    Renamed is a part that only the base's paths have, into one that only the other's have, where paths that differ in
    nothing else are called equally often, and no other part could be meant.
    """
    key = next((key for key in keys if key in PATHS), None)
    if key is None or base.empty or other.empty or "calls" not in base or "calls" not in other:
        return [base, other]
    names = _renamed(_calls(base, key), _calls(other, key))
    if not names:
        return [base, other]
    return [_rewritten(frame, key, {**{old: old for old in names.values()}, **names}) for frame in (base, other)]


def _calls(frame: pd.DataFrame, key: str) -> dict[str, float]:
    own = frame[frame[key].notna()]
    sums = own["calls"].astype("float64").groupby(own[key].astype("str")).sum()
    return {str(path): float(calls) for path, calls in sums.items()}


def _renamed(base: dict[str, float], other: dict[str, float]) -> dict[str, str]:
    """The other's part → the base's, where each is the only one that the other can be."""
    parts = [{part for path in own for part in path.split("/")} for own in (base, other)]
    found = Counter(_pairs(base, other, parts[0] - parts[1], parts[1] - parts[0]))
    olds, news = (Counter(pair[side] for pair in found) for side in (0, 1))
    return {new: old for old, new in found if olds[old] == news[new] == 1}


def _pairs(
    base: dict[str, float], other: dict[str, float], only_base: set[str], only_other: set[str]
) -> Iterator[tuple[str, str]]:
    """Parts that only one run has, in paths that are otherwise the same and called as often."""
    by_rest: dict[tuple[object, ...], list[str]] = {}
    for path, calls in other.items():
        for rest, part in _with_a_hole(path, only_other):
            by_rest.setdefault((*rest, calls), []).append(part)
    for path, calls in base.items():
        for rest, part in _with_a_hole(path, only_base):
            yield from ((part, new) for new in by_rest.get((*rest, calls), ()))


def _with_a_hole(path: str, chosen: set[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The parts of a path without one of those chosen, and that one."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if part in chosen:
            yield (*parts[:place], "", *parts[place + 1 :]), part


def _rewritten(frame: pd.DataFrame, key: str, names: dict[str, str]) -> pd.DataFrame:
    said = {old: f"renamed: {old} → {new}" for new, old in names.items() if new != old}
    paths = frame[key].astype("object")
    parted = [text.split("/") if isinstance(text, str) else [] for text in paths]
    plain = [[names.get(part, part) for part in parts] for parts in parted]
    reasons = [next((said[part] for part in parts if part in said), None) for parts in plain]
    texts = ["/".join(parts) if parts else text for parts, text in zip(plain, paths, strict=True)]
    held = frame[WHY] if WHY in frame else pd.Series(None, index=frame.index, dtype="object")
    made: pd.DataFrame = frame.assign(
        **{key: texts, WHY: held.where(held.notna(), pd.Series(reasons, index=frame.index, dtype="object"))}
    )
    return made
