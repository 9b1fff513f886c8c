"""Rows of boxes: a bar for each rank, a heat map of many ranks, a pipeline's schedule, who sends how much to whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.communication.clocks import Clock
from traceanalyzer.analyses.experts import DISPATCH
from traceanalyzer.analyses.overview import UnlikeRanks
from traceanalyzer.findings.run import in_words
from traceanalyzer.meaning.columns import Unit, is_known, numbers, per_cent, text
from traceanalyzer.meaning.vocabulary import TRANSFER, Part, numbered
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import Split, headline_steps

_ns, _size, _pct = (partial(text, unit=unit) for unit in (Unit.NS, Unit.BYTES, Unit.PCT))


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a row.

    Attributes:
        at: where it begins, in percent of the row's width; `width` likewise.
        look: the kind whose color it has.
        label: what it says on hover.
        text: what stands in it where it is wide enough.
        opacity: 0 to 1.
        data: what the page's script needs, by the name of the `data-` attribute.
    """

    at: float
    width: float
    look: str
    label: str
    text: str = ""
    opacity: float = 1.0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, boxes, the text at its end, a line below it, and its attributes for the script."""

    name: str
    boxes: tuple[Box, ...]
    end: str = ""
    note: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Rows with a title, and what there is to say of them; `heads` stand above columns of equal width."""

    title: str
    note: str
    rows: tuple[Row, ...]
    heads: tuple[str, ...] = ()


# One bar for each rank: a mean step, or the capture, split into parts that add up.


def bars(split: Split, unlike_ranks: UnlikeRanks) -> list[Row]:
    """The ranks of which bars are drawn, on one scale."""
    longest = split.table["window_ns"].max()
    made = []
    for row in shown(split, unlike_ranks).to_dict("records"):
        at: float = 0
        boxes = []
        for part in split.parts:
            if ns := row[part.column]:
                length, share = _ns(ns), _pct(row[part.share])
                data = {
                    "part": part.column,
                    "name": part.label,
                    "kind": part.kind,
                    "ns": ns,
                    "ms": length,
                    "pct": share,
                }
                boxes.append(
                    Box(at, 100 * ns / longest, part.kind, f"{part.label}: {length}, {share}", length, 1.0, data)
                )
                at += boxes[-1].width
        needs = {"CPU": row["host_needs_ns"], "GPU": row["gpu_needs_ns"]}
        texts = ", ".join(f"{who} {_ns(ns)}" for who, ns in needs.items() if is_known(ns))
        note = f"without waits: {texts}" if texts else ""
        rank = {"rank": row["rank"], "window": row["window_ns"]}
        made.append(Row(f"rank {row['rank']}", tuple(boxes), _ns(row["window_ns"]), note, rank))
    return made


def shown(split: Split, unlike_ranks: UnlikeRanks) -> pd.DataFrame:
    """All ranks' rows; of many those unlike the others, else the ends, beside the one in the middle."""
    table = split.table
    if len(table) < LAYOUT.many_ranks:
        return table
    ends = [int(table.loc[at, "rank"]) for at in (table["compute_ns"].idxmin(), table["compute_ns"].idxmax())]
    ranks = list(dict.fromkeys(unlike_ranks.table["rank"].tolist()))[: LAYOUT.outlier_bars] or ends
    return table[table["rank"].isin([*ranks, middle(split)])]


def middle(split: Split) -> int:
    """The rank whose share of compute is the median's, or next to it: what the outliers are to be compared with."""
    compute = split.table.set_index("rank")["compute_pct"].astype("float64")
    return int((compute - compute.median()).abs().idxmin())


# Many ranks at a glance: a heat map of ranks by parts, and the ranks that are unlike the others.


def heat(split: Split) -> list[Row]:
    """A row for each part that any rank has; opacity goes from 0% to the largest share of any part."""
    table = split.table.set_index("rank")
    shares = [(part, table[part.share].astype("float64")) for part in split.parts if table[part.column].any()]
    top = max([float(share.max()) for _, share in shares], default=0.0) or 1.0
    return [_heat_row(part, share, top) for part, share in shares]


def _heat_row(part: Part, share: pd.Series, top: float) -> Row:
    """Ranks of equal level beside each other become one box: a page of 1,024 ranks stays small."""
    level = (LAYOUT.heat_levels * share / top).round().astype(int)
    width = 100.0 / len(share)
    boxes, at = [], 0
    for _, own in share.groupby(level.ne(level.shift()).cumsum().to_numpy()):
        label = f"{part.label}, {numbered('rank', own.index.tolist())}: {_span(own)}"
        boxes.append(Box(at * width, len(own) * width, part.kind, label, "", int(level.iloc[at]) / LAYOUT.heat_levels))
        at += len(own)
    return Row(part.label, tuple(boxes), _span(share), part=part)


def _span(share: pd.Series) -> str:
    """`65–80.7%`, or one of them where they read alike."""
    return f"{'–'.join(dict.fromkeys((per_cent(float(share.min())), per_cent(float(share.max())))))}%"


def unlike(split: Split, unlike_ranks: UnlikeRanks, places: Places | None) -> str:
    """The ranks of `unlike_ranks` and by what they differ, what differs most first."""
    labels = {part.column: part.label for part in split.parts}
    sets: dict[tuple[int, ...], dict[str, Mapping[str, Any]]] = {}
    for row in unlike_ranks.rows():
        sets.setdefault(numbers(row["alike_ranks"]), {}).setdefault(row["part"], row)
    every = split.table["rank"].tolist()
    found = []
    for ranks, own in sets.items():
        who = numbered("rank", ranks) if places is None else in_words(ranks, every, places)
        ordered = sorted(own.values(), key=lambda row: -row["alike_away_ns"])
        differences = ", ".join(
            f"{labels[r['part']]} {_ns(r['alike_ns'])} (median {_ns(r['median_ns'])})" for r in ordered
        )
        found.append((ordered[0]["alike_away_ns"], f"{who}: {differences}"))
    texts = [text for _, text in sorted(found, key=lambda item: -item[0])]
    if not texts:
        return "No rank stands out. Bars: the ranks that compute most and least, and the median rank."
    most = LAYOUT.listed
    more = f"; {len(texts) - most} more" if len(texts) > most else ""
    return f"Outliers: {'; '.join(texts[:most])}{more}. Bars: the farthest, and rank {middle(split)}, the median."


# Pictures of sections: a pipeline's schedule, and all-to-alls.


def pictures(results: Results, clock: Clock | None, name: str) -> list[Picture]:
    """The pictures of the section of the Result called `name`."""
    made = [schedule(results, clock)] if name == "pipeline_schedule" else [sends(results), loads(results)]
    return [picture for picture in made if picture is not None]


# A pipeline's schedule: when each stage computes which microbatch, forward and backward.


def schedule(results: Results, clock: Clock | None) -> Picture | None:
    """The last complete step of the pipeline that waits most; `None` where there is none, or too much to draw."""
    stages = results["pipeline"].to_frame() if "pipeline" in results else pd.DataFrame()
    stretches = results["pipeline_schedule"].to_frame()
    known = set(stretches["step"].dropna())
    steps = known & set(headline_steps(results)) or known
    if stages.empty or clock is None or not steps:
        return None
    bubbles = stages.assign(bubble=stages["bubble_ns"].astype("Float64").fillna(0)).groupby("pipeline")["bubble"].sum()
    own = stages[stages["pipeline"] == bubbles.idxmax()].sort_values("stage")
    blocks = stretches[(stretches["step"] == max(steps)) & stretches["rank"].isin(own["rank"])]
    if blocks.empty or len(blocks) > LAYOUT.schedule_blocks:
        return None
    shifts = blocks["rank"].map(clock.shift_ns)
    drawn = blocks.assign(start_ns=blocks["start_ns"] - shifts, end_ns=blocks["end_ns"] - shifts)
    first = int(drawn["start_ns"].min())
    length = max(int(drawn["end_ns"].max()) - first, 1)
    rows = tuple(
        Row(f"stage {stage}", _blocks(drawn[drawn["rank"] == rank], first, length),
            "" if pd.isna(bubble) else f"{_pct(bubble)} bubble", data={"rank": rank})
        for rank, stage, bubble in own[["rank", "stage", "bubble_pct"]].itertuples(index=False)
    )  # fmt: skip
    others = f", the one of {len(bubbles)} pipelines that waits most" if len(bubbles) > 1 else ""
    note = f"{numbered('rank', own['rank'].tolist())}{others}; {_ns(length)} wide"
    return Picture(f"Schedule of step {int(max(steps))}", note, rows)


def _blocks(own: pd.DataFrame, first_ns: int, length_ns: int) -> tuple[Box, ...]:
    columns = ["start_ns", "end_ns", "compute_ns", "phase", "microbatch", "virtual_stage"]
    return tuple(
        Box(
            100 * (start - first_ns) / length_ns,
            100 * (end - start) / length_ns,
            "forward" if phase == "forward" else "compute",
            f"{phase} of microbatch {microbatch}{'' if pd.isna(stage) else f' in stage {stage}'}: "
            f"{_ns(end - start)}, compute {_ns(compute)}",
            str(microbatch),
        )
        for start, end, compute, phase, microbatch, stage in own[columns].itertuples(index=False)
    )


# All-to-alls: who sends how much to whom, and which rank gets most by layer and step.


def sends(results: Results) -> Picture | None:
    """The group that sends most, dispatches where there are any; `None` without split sizes or of too many ranks."""
    frame = results["exchange_sends"].to_frame()
    frame = frame[frame["direction"] == DISPATCH] if (frame["direction"] == DISPATCH).any() else frame
    totals = frame.groupby(["group_label", "direction"])["size_bytes"].sum()
    if totals.empty:
        return None
    label, direction = totals.idxmax()
    own = frame[(frame["group_label"] == label) & (frame["direction"] == direction)]
    ranks = sorted(own["peer"].unique().tolist())
    if len(ranks) > LAYOUT.square_cells:
        return None
    most = max(int(own["size_bytes"].max()), 1)
    rows = [
        _squares(
            f"rank {rank}",
            len(ranks),
            ((ranks.index(int(peer)), int(size) / most, _size(size),
              f"rank {rank} {'keeps' if peer == rank else f'sends rank {peer}'} {_size(size)}")
             for peer, size in part[["peer", "size_bytes"]].itertuples(index=False)),
        )
        for rank, part in own.groupby("rank")
    ]  # fmt: skip
    note = f"{label}, {int(own['calls'].max())} {direction} calls per rank. Rows send, columns receive; darker is more."
    return Picture(
        "All-to-all: bytes by sender and receiver", note, tuple(rows), tuple(f"rank {rank}" for rank in ranks)
    )


def loads(results: Results) -> Picture | None:
    """Which rank gets how much in each dispatch; `None` without dispatches in steps."""
    frame = results["expert_layers"].dispatches()
    if frame.empty:
        return None
    label = frame.groupby("group_label")["load_bytes"].sum().idxmax()
    own_loads = frame[frame["group_label"] == label]
    steps = sorted(own_loads["step"].unique().tolist())[: LAYOUT.square_cells]
    ranks = results["exchanges"].to_frame().merge(own_loads[["group", "group_ranks"]].drop_duplicates())
    each = dict(list(ranks[ranks["direction"] == DISPATCH].groupby(["place", "step"])))
    rows = [
        _squares(
            f"all-to-all {place}",
            len(steps),
            (_load(row, steps.index(row["step"]), each[place, row["step"]])
             for row in own.to_dict("records") if row["step"] in steps),
        )
        for place, own in list(own_loads.groupby("place"))[:LAYOUT.square_cells]
    ]  # fmt: skip
    note = f"{label}: the rank that receives most and how many times the mean. Darkest from twice the mean on."
    return Picture("Expert load by layer and step", note, tuple(rows), tuple(f"step {step}" for step in steps))


def _load(row: Mapping[Any, Any], at: int, own: pd.DataFrame) -> tuple[int, float, str, str]:
    share, hot = row["load_max_over_mean"], row["hot_rank"]
    each = ", ".join(f"rank {rank} {_size(size)}" for rank, size in zip(own["rank"], own["load_bytes"], strict=True))
    where, is_even = f"step {row['step']}, all-to-all {row['place']}", pd.isna(hot)
    what = "all ranks receive as much" if is_even else f"rank {hot} receives {share:.2f} × the mean"
    return at, min(max(share - 1, 0), 1), "even" if is_even else f"{hot}: {share:.2f}", f"{where}: {what} ({each})"


def _squares(name: str, count: int, cells: Iterable[tuple[int, float, str, str]]) -> Row:
    """A row of cells of equal width: each one's column, darkness, text and label."""
    width = 100.0 / count
    return Row(
        name,
        tuple(Box(at * width, width, TRANSFER.kind, label, text, round(dark, 3)) for at, dark, text, label in cells),
    )
