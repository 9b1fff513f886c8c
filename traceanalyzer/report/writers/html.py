"""The report as one HTML page that needs no network."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from traceanalyzer.analyses.base import is_true
from traceanalyzer.errors import Failure, sentences
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.report import assets, words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.page import rows, table_view
from traceanalyzer.report.page.charts import chart, charts, embedded, step_chart
from traceanalyzer.report.page.sections import Guard, not_measured, parts, rows_of, sections, tiles
from traceanalyzer.report.timeline import meant_ranks, pins, timeline_data
from traceanalyzer.report.words import Split, headline_facts, headline_steps, split
from traceanalyzer.report.writers import write_text


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
    low, high = (columns.text(end, Unit.NS) for end in (lengths_ns.min(), lengths_ns.max()))
    return high if low == high else f"{low} to {high}"


def _captured(steps: int, complete: int) -> str:
    what = "1 step" if steps == 1 else f"{steps} steps"
    return f"{what} captured{f', {complete} complete' if complete != steps else ''}"


def _zero(report: Report) -> int:
    starts = report.results["ranks"].to_frame()["window_start_ns"].dropna()
    return int(starts.min()) if len(starts) else 0
