"""The report as one HTML page that needs no network: its parts, sections and tiles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import jinja2
import pandas as pd
from markupsafe import Markup

from traceanalyzer.analyses import Result, Results, column_named
from traceanalyzer.analyses.base import is_true
from traceanalyzer.errors import Failure, sentences
from traceanalyzer.job.run_info import RunInfo, peak_memory
from traceanalyzer.meaning.columns import ABSENT, Unit, is_known, text
from traceanalyzer.meaning.names import collective_words, collectives_words
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    FUSED,
    IDLE,
    OPAQUE,
    UNMATCHED,
    first_upper,
    rate,
)
from traceanalyzer.report import assets, rows, table_view, words
from traceanalyzer.report.charts import chart, charts, embedded, step_chart
from traceanalyzer.report.contents import LAYOUT, Report
from traceanalyzer.report.table_view import TableView, view_of
from traceanalyzer.report.timeline import meant_ranks, pins, timeline_data
from traceanalyzer.report.words import Split, figures_of_ranks, headline_facts, headline_steps, split, unsplit_calls
from traceanalyzer.report.writers import write_text

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


# The page.


def write(report: Report, folder: Path, *, failures: list[Failure] | None = None) -> list[Path]:
    """Write `summary.html`; `failures` takes up the parts that could not be drawn: without it they are raised."""
    return [write_text(folder / "summary.html", page(report, failures=failures))]


def page(report: Report, *, failures: list[Failure] | None = None) -> str:
    """The page's text; parts that fail are raised, or with a list for them noted there and on the page."""
    environment = assets.environment()
    guard = Guard(environment, is_strict=failures is None)
    of_ranks = guard.made("split", partial(split, report.results), None)
    context = _context(report, of_ranks, guard)
    context["drawn"] = partial(guard.drawn, context)
    body = environment.get_template("page/body.html").render(context)
    if guard.found:  # once more, with what failed in its notes
        context["care"] = [*sentences(guard.found.values()), *context["care"]]
        body = environment.get_template("page/body.html").render(context)
    if failures is not None:
        failures += guard.found.values()
    shell = {"report": report, "version": report.version, "body": Markup(body)}  # noqa: S704 - escaped above
    return assets.render("report.html", shell, entry="run.js")


def _context(report: Report, of_ranks: Split | None, guard: Guard) -> dict[str, Any]:
    """What the templates see."""
    first = next((rank for finding in report.findings[:1] for rank in meant_ranks(finding)), None)
    timeline = guard.made(
        "timeline", partial(timeline_data, report.results, report.findings, of_ranks, _zero(report)), None
    )
    return {
        "report": report,
        "words": words,
        "table_view": table_view,
        "bars": rows,
        "results": report.results,
        "split": of_ranks,
        "timeline": timeline,
        "bound": guard.made("bottleneck", partial(words.verdict, report, of_ranks), None),
        "verdict": guard.made("host", partial(words.without_gpu_work, report), []),
        "capture_line": guard.made("capture", partial(words.capture_line, report), ""),
        "tiles": guard.made("tiles", partial(tiles, report, of_ranks), []),
        "care": guard.made("care", partial(words.care_sentences, report), list(report.notes)),
        "doubted": guard.made("doubts", partial(words.doubted, report.results), {}),
        "head": guard.made("head", partial(_head, report), []),
        "ranks_of": meant_ranks,
        "step_chart": guard.made("steps chart", partial(_step_chart, report, of_ranks), None),
        "embedded": embedded,
        "parts": parts(report, of_ranks),
        "sections": sections(report.results),
        "rows_of": rows_of,
        "not_measured": not_measured,
        "zero_ns": _zero(report),
        "pictures": partial(rows.pictures, report.results, timeline.clock if timeline else None),
        "chart": chart,
        "charts": charts(first),
    }


def _step_chart(report: Report, parts: Split | None) -> dict[str, Any] | None:
    ranks = [int(rank) for rank in report.results["ranks"].table["rank"]]
    return step_chart(
        report.results, [pin["rank"] for pin in pins(report.findings, parts, ranks, report.results)], report.run_info
    )


def _head(report: Report) -> list[str]:
    """What the run was: strategy and model where a run.json says so, GPUs, world size, steps, software."""
    ranks, steps = report.results["ranks"].to_frame(), report.results["steps"].to_frame()
    facts = headline_facts(report.run_info) if report.run_info else []
    if ranks.empty:
        return facts
    sizes = [int(size) for size in ranks["world_size"].dropna().unique()]
    if not sizes and report.run_info and report.run_info.world_size:
        sizes = [report.run_info.world_size]
    if words.is_host_only(report.results):
        of_job = ["no GPU work"]
        complete = steps.loc[~is_true(steps["is_partial"]), "step"].nunique()
    else:
        of_job = [f"world size {sizes[0]:,}" if len(sizes) == 1 else "", words.shape(report) or ""]
        complete = len(headline_steps(report.results))
    captured = (
        _captured(steps["step"].nunique(), complete) if len(steps) else f"{_between(ranks['window_ns'])} captured"
    )
    versions = ranks["versions"].dropna().unique().tolist()
    facts += [*words.hardware(report), *of_job, captured, *(words.versions(versions[0]) if len(versions) == 1 else [])]
    return [fact for fact in facts if fact and fact != report.label]


def _between(lengths_ns: pd.Series) -> str:
    """The shortest and the longest, or one where they read alike."""
    low, high = (_ns(end) for end in (lengths_ns.min(), lengths_ns.max()))
    return high if low == high else f"{low} to {high}"


def _captured(steps: int, complete: int) -> str:
    what = "1 step" if steps == 1 else f"{steps} steps"
    return f"{what} captured{f', {complete} complete' if complete != steps else ''}"


def _zero(report: Report) -> int:
    starts = report.results["ranks"].to_frame()["window_start_ns"].dropna()
    return int(starts.min()) if len(starts) else 0


_ns, _size = partial(text, unit=Unit.NS), partial(text, unit=Unit.BYTES)

# Which Results stand where on the page, with which columns, and which of them are open.


PARTS: Mapping[str, str] = MappingProxyType(
    {
        "time": "Where each rank’s time goes",
        "communication": "Communication",
        "cpu": "CPU",
        "kernels": "Kernels, operators and copies",
        "memory": "Memory",
        "about": "Data quality, versions, definitions",
    }
)
"""The page's parts in order, with their headings."""


@dataclass(frozen=True, slots=True)
class Section:
    """One Result's place on the page.

    Attributes:
        name: of the Result.
        first: rows that stand open; 0: the table is folded.
        columns: those that are shown; all without any.
        template: in `sections/`.
        part: of the page.
    """

    name: str
    first: int = 0
    columns: tuple[str, ...] = ()
    template: str = "default"
    part: str = ""


PLACES: Mapping[str, tuple[Section, ...]] = MappingProxyType(
    {
        "time": (
            Section("pipeline_schedule", template="picture"),
            Section("expert_layers", template="picture"),
            Section("pipeline"),
            Section("cpu_steps", 8),
            Section("iterations", 8),
            Section("steps"),
        ),
        "communication": (
            Section("by_collective", 6),
            Section("stragglers", columns=(
                "rank", "cost_max_ns", "cost_max_rank", "cost_pct", "waiting_ranks", "collective", "steps_affected",
                "cause", "cause_ns", "operation",
            ), template="stragglers"),
            Section("micro_steps"),
            Section("calls", template="chart"),
        ),
        "cpu": (
            Section("host_work", 5, (
                "rank", "role", "name", "what", "host_per_step_ns", "host_ns", "idle_per_step_ns", "idle_pct", "calls",
                "launches",
            )),
            Section("gaps", columns=(
                "rank", "step", "start_ns", "length_ns", "cause", "doing", "doing_ns", "range", "ended_by",
            )),
            Section("sync_calls"),
            Section("compilations"),
        ),
        "kernels": (
            Section("kernels_over_ranks", 6, (
                "name", "kind", "share_pct", "total_ns", "calls", "mean_ns", "min_ns", "max_ns", "lowest_total_ns",
                "lowest_rank", "highest_total_ns", "highest_rank",
            )),
            Section("operators_over_ranks"),
            Section("copies"),
            Section("operator_kernels", template="chart"),
            Section("efficiency", template="chart"),
        ),
        "memory": (
            Section("memory", 8),
            Section("memory_categories"),
            Section("memory_fit"),
            Section("gpu_metrics"),
        ),
    }
)  # fmt: skip
"""Everything else is in CSV and JSON."""


def sections(results: Results) -> list[Section]:
    """Of each Result that has a place and rows."""
    placed = (replace(one, part=part) for part, own in PLACES.items() for one in own)
    return [one for one in placed if one.name in results and len(results[one.name])]


def parts(report: Report, split: Split | None) -> list[tuple[str, str]]:
    """The parts that the page has: those with a section, with bars or with memory snapshots, and the last."""
    has = {one.part for one in sections(report.results)} | {"about"}
    has |= {name for name, is_there in (("time", split), ("memory", report.snapshots)) if is_there}
    return [(name, title) for name, title in PARTS.items() if name in has]


def rows_of(result: Result, section: Section) -> pd.DataFrame:
    """What a table shows: of gaps the longest, of other Results all."""
    frame: pd.DataFrame = result.to_frame()
    return frame.nlargest(LAYOUT.gaps, "length_ns") if section.name == "gaps" else frame


# The bars as a table, for a terminal and Markdown: how long a rank's step takes, and the shares of its parts.


_RARE = (FUSED, UNMATCHED, OPAQUE)
"""Only where they are not 0: kernels that communicate too, CUDA graphs that were recorded whole."""


def rank_view(report: Report, split: Split) -> TableView:
    """A row for each rank of which a bar is drawn; exposed communication as transfer and wait where they are known."""
    of_headline = report.results["headline"].to_frame()[["rank", FUSED.column, FUSED.share, "overlap_pct"]]
    frame = rows.shown(split, report.results["unlike_ranks"]).merge(of_headline, on="rank")
    comm = COMM_PARTS if split.has_wait else (COMM,)
    every = (COMPUTE, FUSED, *comm, COPY, IDLE, OPAQUE)
    parts = {part.share: part.short for part in every if part not in _RARE or frame[part.column].any()}
    labels = {"rank": "rank", "window_ns": "step" if split.steps else "window", **parts, "overlap_pct": "overlap"}
    meanings = {name: replace(column_named(name), label=label) for name, label in labels.items()}
    return view_of(frame, f"Where each rank's GPU time goes ({split.basis}, as profiled)", meanings, tuple(labels))


def rank_caption(split: Split, view: TableView) -> str:
    """Which ranks such a table has, where not all."""
    if view.total == len(split.table):
        return ""
    return f"{view.total} of {len(split.table):,} ranks: those unlike the others and the median, {rows.middle(split)}"


def not_measured(results: Results, split: Split | None) -> str:
    """Which calls of the headline's steps wait in a way that cannot be measured, and how much time that is."""
    calls = unsplit_calls(results, headline_steps(results))
    if split is None or calls.empty or not split.has_wait:
        return ""
    whys: dict[str, list[str]] = {}
    for (why, name), count in calls.groupby(["why_not_split", "collective"], sort=False).size().items():
        whys.setdefault(why, []).append(f"{count} {(collectives_words if count > 1 else collective_words)(name)}")
    exposed = split.table.set_index("rank")["exposed_unmatched_ns"]
    reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in whys.items())
    most = f"at most {_ns(exposed.max())}{rate(split.steps)} of exposed communication, on rank {exposed.idxmax()}"
    return f"Waits not measured: {reasons}; {most}."


# The tiles below the cards: one figure each, with its ends over ranks and its definition.


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure; `doubt` says why a Result that it comes from is to be read with care."""

    name: str
    value: str
    details: tuple[str, ...]
    definition: str
    doubt: str | None = None


def tiles(report: Report, split: Split | None) -> list[Tile]:
    """Step time, compute, exposed communication, idle and overlap of the headline's steps; then what else is known."""
    if split is None:
        return []
    over, info, doubts = figures_of_ranks(report.results), report.run_info, words.reasons(report.results)
    own: list[tuple[Tile, tuple[str, ...]]] = [(_length(over, split, info), ("headline",))]
    for part in (COMPUTE, COMM, COPY, IDLE):
        sources = ("headline", "exposed_comm") if part is COMM else ("headline",)
        if part is not COPY or _is_copy_bound(over):
            own.append((_share(over, part.share, first_upper(part.label), part.definition), sources))
    own.append((_share(over, "overlap_pct", "Overlap", _OVERLAP), ("headline",)))
    own += [(tile, ("headline", "mfu")) for tile in _mfu(report, over)]
    own += [(tile, ()) for tile in (*_speed(info), *_memory(info))]
    return [replace(tile, doubt=words.doubt_of(sources, doubts)) for tile, sources in own]


_OVERLAP = "Share of the communication time that runs under compute; higher is better."


def _is_copy_bound(over: pd.DataFrame) -> bool:
    """Whether exposed copies are more than exposed communication."""
    means = over.mean().fillna(0)
    return bool(means[COPY.share] > means[COMM.share])


def _length(over: pd.DataFrame, split: Split, info: RunInfo | None) -> Tile:
    deviation_ns, unprofiled = over["step_std_ns"].mean(), info and info.unprofiled and info.unprofiled.mean
    details = [split.basis if not is_known(deviation_ns) else f"± {_ns(deviation_ns)} between steps"]
    details += [f"{_ns(unprofiled)} without the profiler"] if unprofiled else []
    definition = (
        "From a step's first GPU operation to the next step's: mean over the complete steps that all ranks have."
        if split.steps
        else "From the first to the last GPU operation of the capture."
    )
    value = _ns(over["window_ns"].mean())
    return Tile("Step time" if split.steps else "Window", value, tuple(details), definition)


def _share(over: pd.DataFrame, figure: str, name: str, definition: str, *more: str) -> Tile:
    """The lowest and highest rank's share; one value where they read alike."""
    values = over[figure].dropna()
    if values.empty:
        return Tile(name, ABSENT, ("no such time, or inside CUDA graphs",), definition)
    low, high = (text(end, Unit.PCT) for end in (values.min(), values.max()))
    ends = () if low == high else (f"lowest: rank {values.idxmin()}", f"highest: rank {values.idxmax()}")
    split = [
        f"{part.label.removeprefix('exposed').lstrip(', ')} {text(mean, Unit.PCT)}"
        for part in COMM_PARTS[:2]
        if figure == "exposed_comm_pct" and (mean := over[part.share].mean()) > 0
    ]
    means = (f"mean: {', '.join(split)}",) if split else ()
    return Tile(name, low if low == high else f"{low[:-1]}–{high}", (*ends, *means, *more), definition)


def _speed(info: RunInfo | None) -> list[Tile]:
    if info is None or info.tokens_per_s is None:
        return []
    definition = "Tokens of one optimizer step over all ranks / step time without a profiler, as the run recorded it."
    return [Tile("Tokens per second", f"{info.tokens_per_s:,.0f}", ("without the profiler",), definition)]


def _mfu(report: Report, over: pd.DataFrame) -> list[Tile]:
    """Of the complete steps; none without a known peak."""
    mfu = report.results.get("mfu")
    if mfu is None or mfu.by_rank().empty:
        return []
    first = mfu.known().iloc[0]
    peak = f"of {first['peak_tflops_per_s']:,.0f} TFLOP/s {first['element_type']}"
    definition = "FLOPs of the model in a step, without recomputation, / (step time · the GPU's peak for that type)."
    # Whether all of it is the model's, a trace does not say: a rank may do work that no other does.
    is_model = mfu.is_of_equal_work or len(report.results.get("pipeline") or ()) > 0
    return [_share(over, "mfu_pct", "MFU" if is_model else "Share of peak FLOPs", definition, peak)]


def _memory(info: RunInfo | None) -> list[Tile]:
    rows = {} if info is None else peak_memory(info)
    peaks = [row["peak_allocated_bytes"] for row in rows.values() if "peak_allocated_bytes" in row]
    if not peaks:
        return []
    definition = "Most memory that PyTorch's allocator had given out at once, as the run recorded it."
    low, high = _size(min(peaks)), _size(max(peaks))
    return [Tile("Peak memory", high, () if low == high else (f"lowest rank {low}",), definition)]
