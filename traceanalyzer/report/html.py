"""The report as one HTML page that needs no network."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from traceanalyzer.analyses import Result
from traceanalyzer.names import short_name
from traceanalyzer.report import (
    Report,
    assets,
    by_collective,
    care,
    heat,
    over_ranks,
    quantities,
    table_view,
    tiles,
    use_strips,
    verdict,
    waiting,
    wording,
)
from traceanalyzer.report.charts import Charts
from traceanalyzer.report.figures import FIGURES
from traceanalyzer.report.icicle import icicle
from traceanalyzer.report.parts import Split, headline_steps, split
from traceanalyzer.report.run_facts import headline_facts
from traceanalyzer.report.schedule import schedule
from traceanalyzer.report.timeline_data import timeline_data

PARTS = (
    ("time", "Where each rank’s time goes"),
    ("findings", "Findings"),
    ("communication", "Communication"),
    ("idle", "Idle and launches"),
    ("kernels", "Kernels and operators"),
    ("streams", "Streams and copies"),
    ("pipeline", "Pipeline"),
    ("memory", "Memory"),
    ("more", "More figures"),
    ("about", "Integrity, window, definitions"),
)
"""The page's parts in order; a template's first line says where its section stands: `{# part: idle 2 #}`."""

_PLACE = re.compile(r"\{# part: (?P<part>\w+)(?: (?P<order>\d+))? #\}")


@dataclass(frozen=True, slots=True)
class Section:
    """One Result's place on the page, and the template that draws it.

    `is_folded`: the template has no heading, so it is a folded table; several of a part stand behind one line.
    """

    name: str
    template: str
    part: str
    order: int
    is_folded: bool


def write(report: Report, folder: Path, *, plotlyjs: str = "inline") -> list[Path]:
    """Write `summary.html`.

    Args:
        report: what to show.
        folder: where to write.
        plotlyjs: `inline` carries the charts' script in the page (about 2 MB, only when there is a chart);
            `directory` writes `plotly.min.js` beside it once, for many reports in one place.
    """
    path = folder / "summary.html"
    path.write_text(page(report, plotlyjs=plotlyjs), encoding="utf-8")
    if plotlyjs == "directory":
        return [path, assets.write_plotly(folder)]
    return [path]


def page(report: Report, *, plotlyjs: str = "inline") -> str:
    """The page's text."""
    environment = _environment()
    charts = Charts(plotlyjs)
    parts = split(report.results)
    context: dict[str, Any] = {
        "report": report,
        "results": report.results,
        "split": parts,
        "verdict": verdict.sentences(report, parts),
        "tiles": tiles.tiles(report, parts),
        "care": care.sentences(report),
        "doubted": care.doubted(report.results),
        "head": _head(report),
        "timeline": timeline_data(report.results),
        "parts": PARTS,
        "sections": _sections(report, environment),
        "view": partial(table_view.view, zero_ns=_zero(report)),
        "view_of": table_view.view_of,
        "evidence": table_view.evidence,
        "over_ranks": over_ranks,
        "by_collective": by_collective,
        "use_strips": use_strips,
        "waiting": waiting,
        "schedule": schedule,
        "zero_ns": _zero(report),
        "heat": heat,
        "plain_rows": table_view.PLAIN_ROWS,
        "chart": charts.add,
        "figures": {**FIGURES, "operator_kernels": partial(icicle, first=_first_rank(report))},
        "charts": charts,
        "scripts": assets.scripts(),
        "style": Markup(assets.read("report.css")),  # noqa: S704 - our own file
    }
    # The body is rendered first: only then is it known which charts there are, and with them which scripts run.
    body = environment.get_template("body.html").render(context)
    return environment.get_template("report.html").render(context, body=Markup(body))  # noqa: S704 - escaped above


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.templates()),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "quantity": quantities.text,
        "digits": quantities.digits,
        "short_name": short_name,
        "unbroken": wording.unbroken,
        "known": quantities.is_known,
    }
    return environment


def _sections(report: Report, environment: jinja2.Environment) -> list[Section]:
    """A section for each Result with rows; tables with a row for each event only where a template is made for them."""
    known = set(environment.list_templates(filter_func=lambda name: name.startswith("section_")))
    made = []
    for name, result in report.results.items():
        own = f"section_{name}.html"
        if len(result) and not _says_nothing(result) and (own in known or not result.is_detail):
            template = own if own in known else "section_default.html"
            made.append(Section(name, template, *_place(template), is_folded="<h3" not in assets.read(template)))
    return sorted(made, key=lambda section: section.order)


def _says_nothing(result: Result) -> bool:
    """Whether a table has but numbers beside its keys, and none that is known and not 0."""
    own = [column for column in result.columns if column not in result.keys]
    kinds = [result.to_frame()[column].dtype.kind for column in own]
    return bool(own) and set(kinds) <= set("iuf") and not result.to_frame()[own].fillna(0).any(axis=None)


def _place(template: str) -> tuple[str, int]:
    """The part that a template's first line names, and its order in it (small ones first, 5 without one)."""
    named = _PLACE.match(assets.read(template))
    return (named["part"], int(named["order"] or 5)) if named and named["part"] in dict(PARTS) else ("more", 5)


def _head(report: Report) -> list[str]:
    """What the run was: strategy and model where a run.json says so, GPUs, world size, steps, window, software."""
    ranks = report.results["ranks"].to_frame()
    told = headline_facts(report.run_info) if report.run_info else []
    if ranks.empty:
        return told
    models = ranks["device_name"].dropna().value_counts()
    gpus = [f"{count} × {model}" for model, count in models.items()] or [f"{len(ranks)} GPUs"]
    sizes = ranks["world_size"].dropna().unique().tolist()
    if not sizes and report.run_info and report.run_info.world_size:
        sizes = [report.run_info.world_size]
    steps = report.results["steps"].to_frame()
    facts = [
        *told,
        *gpus,
        f"world size {sizes[0]}" if len(sizes) == 1 else "",
        _captured(steps["step"].nunique(), len(headline_steps(report.results))),
        f"capture window {quantities.text(ranks['window_ns'].max(), '_ns')}{' a rank' if len(ranks) > 1 else ''}",
        *_versions(ranks["versions"].dropna().unique().tolist()),
    ]
    return [fact for fact in facts if fact]


def _captured(steps: int, complete: int) -> str:
    if not steps:
        return "no steps marked"
    return f"{steps} steps captured{f', {complete} complete' if complete != steps else ''}"


def _versions(texts: list[str]) -> list[str]:
    """The versions if all ranks have the same."""
    return wording.versions(texts[0]) if len(texts) == 1 else []


def _first_rank(report: Report) -> int | None:
    """The rank that the first finding is about, if it is about one."""
    named = re.search(r"\brank (\d+)$", report.findings[0].about or "") if report.findings else None
    return int(named[1]) if named else None


def _zero(report: Report) -> int:
    starts = report.results["ranks"].to_frame()["window_start_ns"].dropna()
    return int(starts.min()) if len(starts) else 0


__all__ = ["PARTS", "Section", "Split", "page", "write"]
