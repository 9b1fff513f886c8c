"""Rows that are one thing under another heading: an operator that moved from the forward to the backward pass."""

import pandas as pd

HEADINGS = ("phase", "autograd")
"""Keys that say where something happens, and not what it is."""

WHY = "moved"
"""Column that says from where to where; absent for rows that did not move."""


def brought_together(base: pd.DataFrame, other: pd.DataFrame, keys: tuple[str, ...]) -> list[pd.DataFrame]:
    """Both tables, with what only one has under a heading and the other under others as one row each.

    Of such rows the heading is written `forward → backward`, in `WHY` too; their sums are added up.
    """
    headings = [key for key in keys if key in HEADINGS]
    rest = [key for key in keys if key not in HEADINGS]
    if not headings or not rest or base.empty or other.empty:
        return [base, other]
    alone = [_without(one, two, keys) for one, two in ((base, other), (other, base))]
    places = [_places(frame[is_alone], headings, rest) for frame, is_alone in zip((base, other), alone, strict=True)]
    known = {name: (places[0][name], places[1][name]) for name in places[0] if name in places[1]}
    if not known:
        return [base, other]
    return [
        _joint(frame, is_alone, headings, rest, known)
        for frame, is_alone in zip((base, other), alone, strict=True)
    ]  # fmt: skip


def _without(frame: pd.DataFrame, other: pd.DataFrame, keys: tuple[str, ...]) -> pd.Series:
    there = set(_names(other, list(keys)))
    return pd.Series([name not in there for name in _names(frame, list(keys))], index=frame.index)


def _names(frame: pd.DataFrame, keys: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*(frame[key].astype("object").where(frame[key].notna(), "").map(str) for key in keys), strict=True))


def _places(frame: pd.DataFrame, headings: list[str], rest: list[str]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """For each thing, by heading, where it happens: `forward + backward`."""
    found: dict[tuple[str, ...], list[set[str]]] = {}
    for name, place in zip(_names(frame, rest), _names(frame, headings), strict=True):
        own = found.setdefault(name, [set() for _ in headings])
        for held, one in zip(own, place, strict=True):
            held.add(one or "none")
    return {name: tuple(" + ".join(sorted(held)) for held in own) for name, own in found.items()}


def _joint(
    frame: pd.DataFrame,
    is_alone: pd.Series,
    headings: list[str],
    rest: list[str],
    known: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]],
) -> pd.DataFrame:
    names = _names(frame, rest)
    moves = is_alone & pd.Series([name in known for name in names], index=frame.index)
    own = frame[moves].assign(**{WHY: None})
    for place, heading in enumerate(headings):
        texts = [_from_to(*(side[place] for side in known[name])) for name in _names(own, rest)]
        own[heading] = texts
        own[WHY] = [text if "→" in text else why for text, why in zip(texts, own[WHY], strict=True)]
    keys = [*headings, *rest, WHY]
    sums = [name for name in own if name not in keys]
    summed = own.groupby(keys, dropna=False, sort=False)[sums].sum(min_count=1).reset_index()
    return pd.concat([frame[~moves], summed], ignore_index=True)


def _from_to(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
