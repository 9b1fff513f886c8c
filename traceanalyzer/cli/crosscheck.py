"""`analyze-traces crosscheck`: our figures beside HolisticTraceAnalysis'."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli.options import FOLLOW_LINKS, PLACE, find_traces

if TYPE_CHECKING:
    import pandas as pd

    from traceanalyzer.discovery.clustering import Run

_READABLE = (".gz", ".json")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=PLACE)
@click.option("--follow-links", is_flag=True, help=FOLLOW_LINKS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, times in nanoseconds.")
def crosscheck(folder: Path, follow_links: bool, as_json: bool) -> None:
    """Print figures of the whole capture beside HolisticTraceAnalysis', and what makes each difference.

    Files of the PyTorch profiler are read by its own reader, other captures come to it by ta.to_hta. Needs the extra:
    pip install '.[hta]' in the clone.
    """
    from rich.console import Console

    from traceanalyzer.export.hta_crosscheck import crosscheck as checked
    from traceanalyzer.loading import load

    found, _ = find_traces(folder, None, (), follows_links=follow_links)
    run = found.runs[-1]
    traces = load([capture.path for capture in run.captures])
    table = checked(traces, _files(run, {trace.rank for trace in traces}))
    if as_json:
        click.echo(json.dumps(json.loads(table.to_json(orient="records")), indent=1))
    else:
        _show(table, Console())


def _files(run: "Run", ranks: set[int]) -> dict[int, Path] | None:
    """The files by rank, where its reader can read every one."""
    held = {capture.ranks[0]: capture.path for capture in run.captures if len(capture.ranks) == 1}
    is_its = set(held) == ranks and all(path.name.endswith(_READABLE) for path in held.values())
    return held if is_its else None


def _show(table: "pd.DataFrame", console: Any) -> None:
    from traceanalyzer.export.hta_crosscheck import REASONS
    from traceanalyzer.meaning.columns import Unit, stem, unit_of

    for row in table.to_dict("records"):
        difference = _text(row["figure"], row["difference"], signed=True)
        figure = stem(row["figure"]).replace("_", " ")
        both = f"ours {_text(row['figure'], row['ours'])}, HolisticTraceAnalysis {_text(row['figure'], row['hta'])}"
        console.print(f"[bold]rank {row['rank']} {figure}[/]: {both} ({difference})", highlight=False, soft_wrap=True)
        for reason in (*REASONS, "unexplained"):
            if abs(row[reason]) > (_LEAST_PCT if unit_of(row["figure"]) is Unit.PCT else 0.5):
                console.print(f"    {_text(row['figure'], row[reason], signed=True)}  {reason}", highlight=False)


_LEAST_PCT = 0.0005


def _text(figure: str, value: float, *, signed: bool = False) -> str:
    from traceanalyzer.meaning.columns import Unit, unit_of

    sign = "+" if signed else ""
    if value != value:  # noqa: PLR0124 - not a number
        return "n/a"
    return f"{value:{sign}.3f} %" if unit_of(figure) is Unit.PCT else f"{value / 1e6:{sign},.4f} ms"
