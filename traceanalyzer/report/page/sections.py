"""The sections of a page and what each shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

import jinja2
import pandas as pd
from markupsafe import Markup

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.clocks import Clock
from traceanalyzer.analyses.communication.collectives import CollectiveWaits
from traceanalyzer.analyses.experts import DISPATCH
from traceanalyzer.analyses.host.idle import GapTable
from traceanalyzer.analyses.overview import Figure, OverRanks, UnlikeRanks
from traceanalyzer.analyses.replay.what_ifs import WhatIfs
from traceanalyzer.failures import Failure
from traceanalyzer.job.run_info import RunInfo, peak_memory
from traceanalyzer.meaning.columns import ABSENT, Unit, is_known, text
from traceanalyzer.meaning.names import collective_words, collectives_words
from traceanalyzer.meaning.vocabulary import TRANSFER, UNMATCHED, WAIT, Part, rate
from traceanalyzer.report import assets, words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.page.heat import shown
from traceanalyzer.report.words import Split, headline_steps, over_ranks_of, unsplit_calls

_ns, _size = partial(text, unit=Unit.NS), partial(text, unit=Unit.BYTES)

# Which Result stands where on the page, and with which template.


PARTS: Mapping[str, str] = MappingProxyType(
    {
        "time": "Where each rank’s time goes",
        "findings": "Findings",
        "what_if": "What if",
        "communication": "Communication",
        "idle": "Idle and launches",
        "kernels": "Kernels and operators",
        "streams": "Streams and copies",
        "pipeline": "Pipeline",
        "memory": "Memory",
        "more": "More figures",
        "about": "Integrity, window, definitions",
    }
)
"""The page's parts in order, with their headings."""

PLACES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "time": (
            "pipeline_schedule",
            "even_experts",
            "expert_layers",
            "headline",
            "time_parts",
            "over_ranks",
            "unlike_ranks",
            "steps",
            "steps_over_ranks",
            "host_steps",
            "cpu_step_parts",
            "cpu_steps",
            "iterations",
            "breakdown",
            "phases",
            "balance",
            "gpu_utilization",
        ),
        "what_if": ("what_ifs", "path_over_ranks", "critical_path", "bottleneck", "slack", "slowdown", "replay"),
        "communication": (
            "by_collective",
            "nccl",
            "calls",
            "episodes",
            "stragglers",
            "exchange_receivers",
            "exchange_sends",
            "groups",
            "collective_waits",
            "collectives",
            "overlap",
            "comm_phases",
            "exposed_comm",
            "matches",
        ),
        "idle": (
            "queue_depth",
            "idle",
            "host_work_over_ranks",
            "host_work",
            "host_silences",
            "compilations",
            "host_meetings",
            "launches",
            "first_calls",
            "sync_calls",
            "sync_copies",
            "cuda_api",
            "gaps",
        ),
        "kernels": (
            "kernels_over_ranks",
            "kernels",
            "nvtx_projection",
            "categories",
            "mfu",
            "modules",
            "fusions",
            "graphs",
            "operators_over_ranks",
            "operators",
            "operator_kernels",
            "matrix_products",
            "efficiency",
        ),
        "streams": ("streams", "stream_pairs", "copies", "block_bounds", "memory_ops"),
        "pipeline": ("pipelines", "pipeline"),
        "memory": (
            "memory",
            "memory_peaks",
            "memory_categories",
            "memory_steps",
            "memory_sources",
            "memory_calls",
            "memory_fit",
            "gpu_metrics",
        ),
        "about": ("integrity", "ranks", "clocks"),
    }
)
"""The Results of each part in the order in which they stand there; one that is named nowhere stands under "more"."""

WITHIN: Mapping[str, str] = MappingProxyType({"kernels": "kernels_over_ranks", "nccl": "by_collective"})
"""Results of each rank that the section of another one, of all ranks, shows folded, where that one has rows."""


@dataclass(frozen=True, slots=True)
class Section:
    """One Result's place on the page, and the template that draws it.

    `is_folded`: the template has no heading, so it is a folded table; several of a part stand behind one line.
    """

    name: str
    template: str
    part: str
    is_folded: bool


def sections(results: Results) -> list[Section]:
    """A section for each Result with rows; one with a row for each event only where it is given a place."""
    placed: dict[str, str] = {name: part for part, names in PLACES.items() for name in names}
    order = [*placed, *(name for name in results if name not in placed)]
    return [
        Section(
            name, template := _template(name), placed.get(name, "more"), is_folded="<h3" not in assets.read(template)
        )
        for name in order
        if name in results and _is_shown(results[name], is_placed=name in placed) and not _is_within(name, results)
    ]


def _template(name: str) -> str:
    own = f"sections/{name}.html"
    return own if (assets.templates() / own).is_file() else "sections/default.html"


def _is_within(name: str, results: Results) -> bool:
    other: str = WITHIN.get(name, name)
    return other != name and other in results and _is_shown(results[other], is_placed=True)


def _is_shown(result: Result, *, is_placed: bool) -> bool:
    return bool(len(result)) and (is_placed or not result.is_detail) and not _says_nothing(result)


def _says_nothing(result: Result) -> bool:
    """Whether a table has but numbers beside its keys, and none that is known and not 0."""
    frame = result.to_frame()
    own = [frame[column] for column in result.columns if column not in result.keys]
    if not own or not {column.dtype.kind for column in own} <= set("iuf"):
        return False
    return not any(column.to_numpy(dtype="float64", na_value=0).any() for column in own)


# Parts of a page that fail: each becomes a note in its place, and the page is made without it.


T = TypeVar("T")


class Guard:
    """Makes the parts of one page; with `is_strict` what fails is raised, else kept as a failure, once a part."""

    def __init__(self, environment: jinja2.Environment, *, is_strict: bool) -> None:
        self.environment = environment
        self.is_strict = is_strict
        self.found: dict[str, Failure] = {}

    def made(self, name: str, make: Callable[[], T], instead: Any) -> T:
        """What `make` gives, or `instead` when it fails."""
        try:
            return make()
        except Exception as error:
            if self.is_strict:
                raise
            self.found.setdefault(name, Failure.of(name, f"The page’s part “{name}”", error))
            return cast("T", instead)

    def drawn(self, context: Mapping[str, Any], name: str, template: str, **more: Any) -> Markup:
        """A template of the page with the macros that all of them use; a sentence where it fails."""

        def make() -> Markup:
            text = self.environment.get_template("page/part.html").render({**context, **more}, part_template=template)
            return Markup(text)  # noqa: S704 - the template escapes

        note = Markup('<p class="quiet">{} could not be drawn: a bug of traceanalyzer.</p>').format(name)
        return self.made(name, make, note)


# Rows of a Result that a page shows where it has many: the longest gaps, the changes that gain something.


MOST_GAPS = 20

LEAST_GAP_NS = 50_000
"""Where none is longer, a sentence is enough: it is what a launch takes."""

LEAST_GAIN_PCT = 0.1
"""Of a step: changes that gain less are named, without a row."""

MOST_GAINS = 8
"""Rows that are shown at first."""


@dataclass(frozen=True, slots=True)
class LongestGaps:
    """The first of the gaps by length; `are_notable` when the longest is worth a table."""

    rows: pd.DataFrame
    longest_ns: int

    @property
    def are_notable(self) -> bool:
        """Whether there is a long one."""
        return self.longest_ns >= LEAST_GAP_NS


def longest_gaps(gaps: GapTable) -> LongestGaps:
    """Of a table that has rows."""
    rows: pd.DataFrame = gaps.to_frame().nlargest(MOST_GAPS, "length_ns")
    return LongestGaps(rows, int(rows["length_ns"].iloc[0]))


@dataclass(frozen=True, slots=True)
class Gains:
    """Changes that gain something, how many of them a page shows at first, and the names of the others.

    `are_bounds`: what gains of the others are is not known to this part of a step.
    """

    rows: pd.DataFrame
    first: int
    others: tuple[str, ...]
    are_bounds: bool


def gains(what_ifs: WhatIfs) -> Gains:
    """By what each change gains of a step; one that gains for some rank is no other."""
    frame: pd.DataFrame = what_ifs.to_frame()
    rows = frame[is_true(frame["gain_pct"] >= LEAST_GAIN_PCT)]
    little = frame.loc[is_true(frame["gain_pct"] < LEAST_GAIN_PCT), "change"].unique()
    others = [str(name) for name in little if name not in set(rows["change"])]
    are_bounds = bool(is_true(frame.loc[frame["change"].isin(others), "is_bound"]).any())
    return Gains(rows, min(max(len(rows), 1), MOST_GAINS), tuple(others), are_bounds)


# What a page shows of who makes the others wait, and which waits cannot be measured.


COLUMNS = (
    "rank", "cost_max_ns", "cost_max_rank", "cost_pct", "cost_mean_ns", "waiting_ranks", "collective",
    "steps_affected", "cause", "cause_ns", "operation",
)  # fmt: skip
"""Of a straggler's row those that a page shows."""


def not_measured(results: Results, split: Split | None) -> str:
    """Which calls of the headline's steps wait in a way that cannot be measured, and how much time that is."""
    calls = unsplit_calls(results, headline_steps(results))
    if split is None or calls.empty or not split.has_wait:
        return ""
    counts = calls.groupby(["why_not_split", "collective"], sort=False).size()
    whys = [
        f"{', '.join(f'{count} {name}' for name, count in _named(own))} ({why})"
        for why, own in counts.groupby("why_not_split", sort=False)
    ]
    exposed = split.table.set_index("rank")["exposed_unmatched_ns"]
    worst = exposed.idxmax()
    return (
        f"Not measured: waits in {'; '.join(whys)}. That is up to {_ns(exposed[worst])}{rate(split.steps)} "
        f"of exposed communication, on rank {worst}."
    )


def _named(counts: pd.Series) -> list[tuple[str, int]]:
    return [
        (collectives_words(key[1]) if count > 1 else collective_words(key[1]), int(count))
        for key, count in counts.items()
    ]


# The waits of ranks in collectives as a table with a column for each collective.


def wait_matrix(result: CollectiveWaits) -> pd.DataFrame:
    """A row for each rank, the longest wait first; of several collectives also what it waits in all."""
    frame = result.to_frame()
    wide = frame.pivot_table(index="rank", columns="collective", values="wait_ns", aggfunc="first").astype("Int64")
    wide = wide[wide.sum().sort_values(ascending=False).index]
    wide.columns = [f"{collective_words(name)}_wait_ns" for name in wide]
    total = frame.drop_duplicates("rank").set_index("rank")["all_wait_ns"]
    table = wide.assign(wait_ns=total).reset_index() if len(wide.columns) > 1 else wide.reset_index()
    return table.sort_values(table.columns[-1], ascending=False, kind="stable", ignore_index=True)


# Who sends how much to whom in all-to-alls, as a square of cells; and which rank gets most, by layer and step.


MOST_RANKS = 64
"""Of a picture: it has a cell for every two ranks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one rank sends to another: its column, darkness (0 to 1), words, and its size in them."""

    column: int
    opacity: float
    label: str
    size: str


@dataclass(frozen=True, slots=True)
class Sender:
    """One row of the square."""

    rank: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Sends:
    """The all-to-alls of one group, in one direction.

    Attributes:
        label: of the group.
        direction: dispatch or exchange.
        calls: all-to-alls of a rank.
        others: groups that are not drawn.
        receivers: their ranks, in order of column.
        received: a sentence on what each receives, with its share of the mean.
        rows: by sender.
    """

    label: str
    direction: str
    calls: int
    others: int
    receivers: tuple[int, ...]
    received: str
    rows: tuple[Sender, ...]


def sends(results: Results) -> Sends | None:
    """The group that sends most, dispatches where there are any; `None` without split sizes or of too many ranks."""
    frame = results["exchange_sends"].to_frame()
    if frame.empty:
        return None
    frame = frame[frame["direction"] == DISPATCH] if (frame["direction"] == DISPATCH).any() else frame
    receivers = results["exchange_receivers"].to_frame()
    told = receivers[receivers["direction"].isin(frame["direction"].unique())]
    totals = told.groupby(["group_label", "direction"])["size_bytes"].sum()
    if totals.empty:
        return None  # of a group without a name nobody is known to receive
    label, direction = totals.idxmax()
    to = told[(told["group_label"] == label) & (told["direction"] == direction)].sort_values("rank")
    own = frame.merge(to[["group", "group_ranks", "direction"]].drop_duplicates())
    ranks = tuple(to["rank"].tolist())
    if len(ranks) > MOST_RANKS:
        return None
    rows = tuple(_sender(int(rank), part, ranks, int(own["size_bytes"].max())) for rank, part in own.groupby("rank"))
    said = "; ".join(
        f"rank {rank} receives {_size(total)}, {share:.2f} × the mean"
        for rank, total, share in zip(ranks, to["size_bytes"], to["of_mean"], strict=True)
    )
    return Sends(str(label), str(direction), int(own["calls"].max()), len(totals) - 1, ranks, f"R{said[1:]}.", rows)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one dispatch: darkness (0 to 1), the rank that receives most and how many times the mean, words."""

    opacity: float
    hot: str
    label: str


@dataclass(frozen=True, slots=True)
class Loads:
    """Of the group whose dispatches bring most, the load of each layer (row) in each step (column).

    Attributes:
        label: of the group.
        steps: numbers of the steps drawn, the first of them.
        left_out: further steps.
        rows: of each layer its place among the step's all-to-alls, and a load a step (`None` where it has none).
    """

    label: str
    steps: tuple[int, ...]
    left_out: int
    rows: tuple[tuple[int, tuple[Load | None, ...]], ...]


MOST_STEPS, MOST_LAYERS = 16, 64
"""Of a picture."""


def loads(results: Results) -> Loads | None:
    """Which rank gets how much in each dispatch; `None` without dispatches in steps."""
    frame = results["dispatch_loads"].to_frame()
    if frame.empty:
        return None
    label = frame.groupby("group_label")["load_bytes"].sum().idxmax()
    held = frame[frame["group_label"] == label]
    every = sorted(held["step"].unique().tolist())
    steps = every[:MOST_STEPS]
    ranks = results["exchanges"].to_frame().merge(held[["group", "group_ranks"]].drop_duplicates())
    each = dict(list(ranks[ranks["direction"] == DISPATCH].groupby(["place", "step"])))
    cells = {(row["place"], row["step"]): _load(row, each[row["place"], row["step"]])
             for row in held.to_dict("records") if row["step"] in steps}  # fmt: skip
    places = sorted({place for place, _ in cells})[:MOST_LAYERS]
    rows = tuple((place, tuple(cells.get((place, step)) for step in steps)) for place in places)
    return Loads(str(label), tuple(steps), len(every) - len(steps), rows)


def _load(row: Mapping[str, Any], own: pd.DataFrame) -> Load:
    """Darkest at twice the mean."""
    share, hot = row["load_max_over_mean"], row["hot_rank"]
    each = "; ".join(f"rank {rank} {_size(size)}" for rank, size in zip(own["rank"], own["load_bytes"], strict=True))
    words = f"step {row['step']}, all-to-all {row['place']}: rank {hot} receives {share:.2f} × the mean ({each})"
    return Load(round(min(max(share - 1, 0), 1), 3), f"{hot}: {share:.2f}", words)


def _sender(rank: int, own: pd.DataFrame, receivers: tuple[int, ...], most: int) -> Sender:
    cells = tuple(
        Cell(
            receivers.index(int(peer)),
            round(int(size) / max(most, 1), 3),
            f"rank {rank} {'keeps' if peer == rank else f'sends rank {peer}'} {_size(size)}",
            _size(size),
        )
        for peer, size in own[["peer", "size_bytes"]].itertuples(index=False)
    )
    return Sender(rank, cells)


# A pipeline's schedule as a picture: when each stage computes which microbatch, forward and backward.


MOST_BLOCKS = 4_000
"""Of a picture; a pipeline with more is left to its table."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of compute; place and width in per cent of the picture."""

    place: float
    width: float
    phase: str
    microbatch: int
    label: str


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One stage."""

    rank: int
    stage: int
    blocks: tuple[Block, ...]
    bubble_pct: float | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step of one pipeline.

    Attributes:
        step: its number.
        ranks: of the pipeline, in order of stage.
        others: pipelines that are not drawn.
        length_ns: from the first stage's first compute to the last compute of any stage.
        rows: by stage.
    """

    step: int
    ranks: tuple[int, ...]
    others: int
    length_ns: int
    rows: tuple[ScheduleRow, ...]


def schedule(results: Results, clock: Clock | None) -> Schedule | None:
    """The last complete step of the pipeline that waits most; `None` where there is none, or too much to draw."""
    stages = results["pipeline"].to_frame() if "pipeline" in results else pd.DataFrame()
    stretches = results["pipeline_schedule"].to_frame()
    step = _step(stretches, headline_steps(results))
    if stages.empty or clock is None or step is None:
        return None
    bubbles = stages.assign(bubble=stages["bubble_ns"].astype("Float64").fillna(0)).groupby("pipeline")["bubble"].sum()
    own = stages[stages["pipeline"] == bubbles.idxmax()].sort_values("stage")
    held = stretches[(stretches["step"] == step) & stretches["rank"].isin(own["rank"])]
    if held.empty or len(held) > MOST_BLOCKS:
        return None
    shifts = held["rank"].map(clock.shift_ns)
    drawn = held.assign(start_ns=held["start_ns"] - shifts, end_ns=held["end_ns"] - shifts)
    first, length = int(drawn["start_ns"].min()), int(drawn["end_ns"].max() - drawn["start_ns"].min())
    rows = tuple(
        ScheduleRow(int(rank), int(stage), _blocks(drawn[drawn["rank"] == rank], first, max(length, 1)),
            None if pd.isna(bubble) else float(bubble))
        for rank, stage, bubble in own[["rank", "stage", "bubble_pct"]].itertuples(index=False)
    )  # fmt: skip
    return Schedule(step, tuple(row.rank for row in rows), len(bubbles) - 1, length, rows)


def _step(stretches: pd.DataFrame, wanted: list[int]) -> int | None:
    """The last of the wanted steps that is there, else the last one."""
    known = stretches["step"].dropna().unique() if len(stretches) else []
    there = [step for step in wanted if step in known] or list(known)
    return int(max(there)) if there else None


def _blocks(own: pd.DataFrame, first_ns: int, length_ns: int) -> tuple[Block, ...]:
    columns = ["start_ns", "end_ns", "compute_ns", "phase", "microbatch", "virtual_stage"]
    return tuple(
        Block(
            100 * (start - first_ns) / length_ns,
            100 * (end - start) / length_ns,
            str(phase),
            int(microbatch),
            f"{phase} of microbatch {microbatch}{_in_stage(stage)}: {_ns(end - start)}, compute {_ns(compute)}",
        )
        for start, end, compute, phase, microbatch, stage in own[columns].itertuples(index=False)
    )


def _in_stage(stage: int | None) -> str:
    return "" if pd.isna(stage) else f" in stage {stage}"


# One bar for each rank: a mean step, or the capture, split into parts that add up.


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one rank's bar.

    Attributes:
        part: what it is.
        ns: its time in a mean step, or the capture.
        at: where it begins, in per cent of the longest bar.
        width: likewise.
        length: the same in words.
        share: of the rank's window, in words.
    """

    part: Part
    ns: float
    at: float
    width: float
    length: str
    share: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One rank.

    Attributes:
        rank: which.
        window_ns: the length of a mean step, or of the capture.
        length: the same in words.
        pieces: the parts that it has.
        needs: what its host and its GPU need for a step by themselves, in words; none where it is not known.
    """

    rank: int
    window_ns: float
    length: str
    pieces: tuple[Piece, ...]
    needs: tuple[str, ...]


def bars(split: Split, unlike_ranks: UnlikeRanks) -> list[Bar]:
    """The ranks of which bars are drawn."""
    longest = split.table["window_ns"].max()
    made = []
    for row in shown(split, unlike_ranks).to_dict("records"):
        at: float = 0
        pieces = []
        for part in split.parts:
            ns = row[part.column]
            if ns:
                width = 100 * ns / longest
                pieces.append(Piece(part, ns, at, width, _ns(ns), text(row[part.share], Unit.PCT)))
                at += width
        needs = {"host": row["host_needs_ns"], "GPU": row["gpu_needs_ns"]}
        said = tuple(f"{who} {_ns(ns)}" for who, ns in needs.items() if is_known(ns))
        made.append(Bar(row["rank"], row["window_ns"], _ns(row["window_ns"]), tuple(pieces), said))
    return made


# The tiles below the verdict: one figure each, with its spread over ranks and its definition.


_IN_GRAPHS = "not told inside CUDA graphs"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure: mean over ranks, spread, and each rank's place on a scale from 0 to 100.

    `sources` are the Results that it comes from; `doubt` says why one of them is to be read with care.
    """

    name: str
    kind: str
    value: str
    detail: str
    spread: tuple[str, ...]
    marks: tuple[tuple[int, float], ...]
    definition: str
    sources: tuple[str, ...] = ("headline",)
    doubt: str | None = None

    @property
    def places(self) -> list[float]:
        """Where marks are drawn: of ranks at one place only one, so that 1,024 ranks stay few marks."""
        return sorted({round(place, 1) for _, place in self.marks})


def tiles(report: Report, split: Split | None) -> list[Tile]:
    """Step time, compute, exposed communication, idle and overlap of the headline's steps; then what else is known."""
    if split is None:
        return []
    frame = report.results["headline"].to_frame().set_index("rank")
    doubts = words.reasons(report.results)
    made = _made(report, frame, over_ranks_of(report.results), split)
    return [replace(tile, doubt=words.doubt_of(tile.sources, doubts)) for tile in made]


def _made(report: Report, frame: pd.DataFrame, over: OverRanks, split: Split) -> list[Tile]:
    return [
        _length(over, split, report.run_info),
        _share(frame["compute_pct"], over.of("compute_pct"), "Compute", "compute",
               "Share of the time in which a compute kernel runs.", _fused(over)),
        replace(_share(frame["exposed_comm_pct"], over.of("exposed_comm_pct"), "Exposed communication",
                       _larger_part(over), "Share of the time in which communication but no compute runs.",
                       _transfer_and_wait(over, split)),
                sources=("headline", "exposed_comm")),
        *_copies(frame, over),
        _share(frame["idle_pct"], over.of("idle_pct"), "Idle", "idle",
               "Share of the time in which nothing runs on the GPU."),
        _overlap(frame, over),
        *_speed(report.run_info),
        *_mfu(report, over),
        *_memory(report.run_info),
    ]  # fmt: skip


def _copies(frame: pd.DataFrame, over: OverRanks) -> list[Tile]:
    """Only where they take more than communication: else the line of tiles has no room for it."""
    copies, comm = over.of("exposed_copy_pct"), over.of("exposed_comm_pct")
    if not (copies["mean_pct"] or 0) > (comm["mean_pct"] or 0):
        return []
    definition = "Share of the time in which a copy, but neither compute nor communication, runs."
    return [_share(frame["exposed_copy_pct"], copies, "Exposed copy", "copy", definition)]


def _larger_part(over: OverRanks) -> str:
    """The kind that stands for exposed communication."""
    wait, transfer = (over.of(name)["mean_pct"] or 0 for name in ("exposed_wait_pct", "exposed_transfer_pct"))
    return "wait" if wait > transfer else "transfer"


def _length(over: OverRanks, split: Split, info: RunInfo | None) -> Tile:
    length, deviation_ns = over.of("window_ns"), over.of("step_std_ns")["mean_ns"]
    detail = split.basis if deviation_ns is None else f"± {_ns(deviation_ns)} between steps"
    if info is not None and info.unprofiled is not None and info.unprofiled.mean is not None:
        detail = f"{detail}; {_ns(info.unprofiled.mean)} without the profiler"
    name = "Step time" if split.steps else "Window"
    definition = (
        "From a step's first GPU operation to the next step's: mean over the complete steps that all ranks have."
        if split.steps
        else "From the first to the last GPU operation of the capture."
    )
    return Tile(name, "plain", _ns(length["mean_ns"]), detail, _spread(length, Unit.NS), (), definition)


def _share(
    of_ranks: pd.Series, over: Mapping[str, Any], name: str, kind: str, definition: str, detail: str = ""
) -> Tile:
    if not over["ranks"]:
        return Tile(name, kind, ABSENT, _IN_GRAPHS, (), (), definition)
    marks = tuple((int(rank), float(value)) for rank, value in of_ranks.dropna().items())
    return Tile(name, kind, text(over["mean_pct"], Unit.PCT), detail, _spread(over, Unit.PCT), marks, definition)


def _fused(over: OverRanks) -> str:
    """Mean share of kernels that compute and communicate at once; empty without any."""
    mean = over.of("fused_pct")["mean_pct"]
    return f"{text(mean, Unit.PCT)} in kernels that communicate too" if mean else ""


def _overlap(frame: pd.DataFrame, over: OverRanks) -> Tile:
    definition = "Share of the communication time that runs under compute; higher is better."
    overlap = over.of("overlap_pct")
    if not overlap["ranks"]:
        why = _IN_GRAPHS if frame["comm_ns"].isna().any() else "no communication"
        return Tile("Overlap", "plain", ABSENT, why, (), (), definition)
    return _share(frame["overlap_pct"], overlap, "Overlap", "plain", definition)


def _speed(info: RunInfo | None) -> list[Tile]:
    if info is None or info.tokens_per_s is None:
        return []
    definition = "Tokens of one optimizer step over all ranks / step time without a profiler, as the run recorded it."
    value = f"{info.tokens_per_s:,.0f}"
    return [Tile("Tokens per second", "plain", value, "without the profiler", (), (), definition, sources=())]


def _mfu(report: Report, over: OverRanks) -> list[Tile]:
    """Of the complete steps; none without a known peak."""
    if "mfu" not in report.results or (of_ranks := report.results["mfu"].by_rank()).empty:
        return []
    mfu, mean = report.results["mfu"], over.of("mfu_pct")
    first = mfu.known().iloc[0]
    peak = f"of {first['peak_tflops_per_s']:,.0f} TFLOP/s {first['element_type']}, {first['step_source']} step"
    name = "MFU"
    definition = "FLOPs of the model in a step, without recomputation, / (step time · the GPU's peak for that type)."
    is_pipeline = "pipeline" in report.results and len(report.results["pipeline"]) > 0
    if not mfu.is_of_equal_work and not is_pipeline:
        # Whether all of it is the model's, a trace does not tell: a rank may do work that no other does.
        name = "FLOPs of peak"
        peak += "; not called MFU: the ranks do not do the same work"
    return [replace(_share(of_ranks, mean, name, "plain", definition, peak), sources=("headline", "mfu"))]


def _memory(info: RunInfo | None) -> list[Tile]:
    rows = {} if info is None else peak_memory(info)
    peaks = {rank: row["peak_allocated_bytes"] for rank, row in rows.items() if "peak_allocated_bytes" in row}
    if not peaks:
        return []
    definition = "Most memory that PyTorch's allocator had given out at once, as the run recorded it."
    least, most = min(peaks, key=lambda rank: peaks[rank]), max(peaks, key=lambda rank: peaks[rank])
    ends = ((peaks[least], least), (peaks[most], most))
    over_ranks = _ends(len(peaks), *ends, Unit.BYTES)
    value = _size(peaks[most])
    return [Tile("Peak memory", "plain", value, "allocated, largest rank", over_ranks, (), definition, sources=())]


def _transfer_and_wait(over: OverRanks, split: Split) -> str:
    """Mean shares of transfer and wait, where they are known apart."""
    if not split.has_wait:
        return "transfer and wait not told apart"
    pieces = [
        f"{part.label.removeprefix('exposed').lstrip(', ')}\u00a0{text(mean, Unit.PCT)}"
        for part in split.parts
        if part.kind in _OF_COMM and (mean := over.of(_OF_COMM[part.kind])["mean_pct"])
    ]
    return "; ".join(pieces)


_OF_COMM: Mapping[str, Figure] = MappingProxyType(
    {TRANSFER.kind: "exposed_transfer_pct", WAIT.kind: "exposed_wait_pct", UNMATCHED.kind: "exposed_unmatched_pct"}
)


def _spread(over: Mapping[str, Any], unit: Unit) -> tuple[str, ...]:
    """Least and most, and whose they are."""
    low, high = (over["least_ns"], over["most_ns"]) if unit is Unit.NS else (over["least_pct"], over["most_pct"])
    return _ends(over["ranks"], (low, over["least_rank"]), (high, over["most_rank"]), unit)


def _ends(ranks: int, low: tuple[float, int], high: tuple[float, int], unit: Unit) -> tuple[str, ...]:
    if ranks < 2:
        return ()
    least, most = text(low[0], unit), text(high[0], unit)
    if least == most:
        return ("the same on both ranks" if ranks == 2 else f"the same on all {ranks:,} ranks",)
    return f"{least} on rank {low[1]},", f"{most} on rank {high[1]}"
