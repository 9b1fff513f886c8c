"""The picture of a hang: a row a rank, suspects first, a column a collective; ranks that look alike share a row."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.doctor import FlightRecorder, hang
from traceanalyzer.meaning.listed import numbered

MOST_COLUMNS = 24
MOST_ROWS = 40
"""Rows of one group; ranks of further patterns are counted below."""

STATES = {
    "completed": "complete",
    "open": "called, not complete",
    "absent": "never called",
    "other": "called otherwise than most ranks",
    "gone": "no longer in the buffer",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks of one pattern, and the state of each column."""

    label: str
    is_suspect: bool
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One process group around the collective at which it hangs."""

    title: str
    seqs: tuple[int, ...]
    operations: tuple[str, ...]
    rows: tuple[Row, ...]
    left_out: int


def pictures(recorder: FlightRecorder, standing: hang.Standing, most_groups: int = 6) -> list[Picture]:
    """Groups with an absence or a mismatch, worst first; without any, groups with something not complete."""
    at = [(one.group, one.seq) for one in standing.absences]
    at += [(one.group, one.seq) for one in standing.mismatches]
    keys = {id(group): key for key, group in recorder.groups.items()}
    focus: dict[str, int] = {}
    for group, seq in at:
        focus[keys[id(group)]] = min(seq, focus.get(keys[id(group)], seq))
    if not focus:
        stuck = recorder.entries[(recorder.entries["state"] != "completed") & ~recorder.entries["is_p2p"]]
        focus = {str(key): int(seq) for key, seq in stuck.groupby("group", observed=True)["seq"].min().items()}
    return [_picture(recorder, standing, key, seq) for key, seq in list(focus.items())[:most_groups]]


def _picture(recorder: FlightRecorder, standing: hang.Standing, key: str, focus: int) -> Picture:
    entries = recorder.entries
    calls = entries[(entries["group"] == key) & ~entries["is_p2p"] & (entries["seq"] >= 0)]
    seqs = sorted(calls["seq"].unique().tolist())
    at = seqs.index(focus) if focus in seqs else len(seqs) - 1
    first = max(0, min(at - MOST_COLUMNS // 2, len(seqs) - MOST_COLUMNS))
    seqs = seqs[first : first + MOST_COLUMNS]
    own = calls[calls["seq"].isin(seqs)]
    usual = own["operation"].astype(str).groupby(own["seq"]).agg(lambda names: names.mode().iloc[0])
    differs = own["operation"].astype(str) != own["seq"].map(usual)
    for mismatch in standing.mismatches:
        if recorder.groups[key] is mismatch.group:
            differs |= (own["seq"] == mismatch.seq) & own["rank"].isin(list(mismatch.others))
    state = own["state"].eq("completed").map({True: "completed", False: "open"}).mask(differs, "other")
    table = own.assign(look=state).drop_duplicates(["rank", "seq"], keep="last").pivot_table(
        index="rank", columns="seq", values="look", aggfunc="first"
    )  # fmt: skip
    group = recorder.groups[key]
    ranks = sorted({*(group.ranks or ()), *table.index} & set(recorder.dumps))
    table = table.reindex(index=ranks, columns=seqs)
    return _rows(group.label, table, usual.reindex(seqs).astype(str).tolist())


def _rows(label: str, table: pd.DataFrame, operations: list[str]) -> Picture:
    """Ranks by pattern, the rarest pattern first: those are the suspects."""
    patterns: dict[tuple[str, ...], list[int]] = {}
    for rank, states in zip(table.index.tolist(), table.to_numpy().tolist(), strict=True):
        patterns.setdefault(_filled(states), []).append(int(rank))
    usual = max(patterns, key=lambda states: len(patterns[states])) if patterns else ()
    rows = [
        Row(numbered("rank", ranks, 4), states != usual and {"absent", "other"} & set(states) != set(), states)
        for states, ranks in sorted(patterns.items(), key=lambda item: (len(item[1]), item[1][0]))
    ]
    ordered = sorted(rows, key=lambda row: not row.is_suspect)
    return Picture(label, tuple(table.columns.tolist()), tuple(operations), tuple(ordered[:MOST_ROWS]),
                   max(0, len(ordered) - MOST_ROWS))  # fmt: skip


def _filled(states: list[object]) -> tuple[str, ...]:
    """Gaps before a rank's first call left the buffer; those after its last call never came."""
    told = [isinstance(state, str) for state in states]
    first = told.index(True) if any(told) else len(told)
    return tuple(
        str(state) if is_told else "gone" if number < first and any(told) else "absent"
        for number, (state, is_told) in enumerate(zip(states, told, strict=True))
    )
