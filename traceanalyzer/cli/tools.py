"""Commands for single tools: crosscheck, reproduce, tree-diff, cache."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli.one_run import of_traces, refuse_others
from traceanalyzer.cli.options import LINKS, PLACE, print_notes
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.loading.store import Contents


# `analyze-traces crosscheck`: our figures beside HolisticTraceAnalysis'.


_READABLE = (".gz", ".json")


@click.command()
@click.argument("folder", type=PLACE)
@LINKS
@click.option("--json", "as_json", is_flag=True, help="Print JSON, times in nanoseconds.")
def crosscheck(folder: Path, follow_links: bool, as_json: bool) -> None:
    """Print figures of the whole capture beside HolisticTraceAnalysis', and what makes each difference.

    Files of the PyTorch profiler are read by its own reader, other captures come to it by ta.to_hta. Needs the extra:
    pip install '.[hta]' in the clone.
    """
    from rich.console import Console

    from traceanalyzer.discovery import discover
    from traceanalyzer.export.hta import crosscheck as checked
    from traceanalyzer.loading import load

    run = discover(folder, follows_links=follow_links).runs[-1]
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
    from traceanalyzer.export.hta import REASONS
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


# `analyze-traces reproduce`: one operator as a script that times it.


@click.command()
@click.argument("folder", type=PLACE)
@click.argument("operator")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Whose calls (default: the first rank's).")
@click.option("--variant", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Which shapes, strides and types: 0 has most GPU time, 1 the next.")  # fmt: skip
@click.option("--output", "-o", type=PLACE, metavar="FILE", help="Script to write (default: reproduce_<operator>.py).")
@click.option("--force", is_flag=True, help="Replace a file that this command did not write.")
def reproduce(folder: Path, operator: str, rank: int | None, variant: int, output: Path | None, *, force: bool) -> None:
    """Write a script that calls OPERATOR (such as aten::mm) with the job's shapes, strides and types, and times it.

    The script needs torch alone. Traces must be the PyTorch profiler's with record_shapes=True.

    \b
    Example:
      analyze-traces reproduce profile/ddp aten::mm
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console

    from traceanalyzer.export.reproduce import reproduce as written
    from traceanalyzer.files.whole import whole_file
    from traceanalyzer.loading import load

    path = output or Path(f"reproduce_{operator.replace('::', '_')}.py")
    refuse_others(path, b"analyze-traces reproduce", force=force)
    traces = load(folder, ranks=rank)
    script = written(traces, operator, rank=rank, variant=variant, file=path.name)
    with whole_file(path) as draft:
        draft.write_text(script, encoding="utf-8")
    print_notes(of_traces(traces), Console())
    click.echo(f"Script: {path}")


# `analyze-traces tree-diff`: where the operator trees of two runs part.


@click.command("tree-diff")
@click.argument("base", type=PLACE)
@click.argument("other", type=PLACE)
@click.option("--rank", type=click.IntRange(min=0), metavar="N",
              help="Whose trees (default: the first rank's of each).")  # fmt: skip
@click.option("--step", type=click.IntRange(min=0), metavar="N",
              help="Of which step (default: the first complete one of each).")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Rows to print.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, all rows.")
def tree_diff(base: Path, other: Path, rank: int | None, step: int | None, top: int, as_json: bool) -> None:
    """Print where one rank's step dispatches other operators in OTHER than in BASE, with their GPU and host time.

    Both must be the PyTorch profiler's: the tree is that of operators calling operators.

    \b
    Example:
      analyze-traces tree-diff profile/eager profile/fused
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console
    from rich.markup import escape

    from traceanalyzer.diff.tree_diff import tree_diff as parted
    from traceanalyzer.loading import load

    one, two = (load(folder, ranks=rank) for folder in (base, other))
    table = parted(one[0], two[0], (step, step))
    ranks = f"Rank {one[0].rank} of {one.label} is held against rank {two[0].rank} of {two.label}."
    notes = [ranks] if one[0].rank != two[0].rank else []
    notes += [f"{side.label}: {note}" for side in (one, two) for note in of_traces(side)]
    print_notes(notes, Console(stderr=as_json))
    if as_json:
        click.echo(json.dumps(table.to_dict("records"), indent=1))
        return
    console = Console()
    if table.empty:
        console.print("The trees are the same: both steps dispatch the same operators in the same order.")
    for row in table.head(top).to_dict("records"):
        gpu = f"GPU {row['base_gpu_ns'] / 1e6:,.3f} → {row['other_gpu_ns'] / 1e6:,.3f} ms"
        host = f"host {row['base_host_ns'] / 1e6:,.3f} → {row['other_host_ns'] / 1e6:,.3f} ms"
        places = f"{row['places']} places" if row["places"] > 1 else "1 place"
        console.print(f"[bold]{escape(row['path']) or 'at the top'}[/] ({places}; {gpu}; {host})", highlight=False)
        console.print(f"  [red]−[/] {escape(row['base']) or 'nothing'}", highlight=False)
        console.print(f"  [green]+[/] {escape(row['other']) or 'nothing'}", highlight=False)
    if len(table) > top:
        console.print(f"{len(table) - top} more rows: --top, or --json for all", highlight=False)


# `analyze-traces cache`: what is kept of large traces that were read.


@click.group()
def cache() -> None:
    """Large traces that were read, and what was made of their ranks, kept for the next run.

    They lie in $XDG_CACHE_HOME/traceanalyzer, else ~/.cache/traceanalyzer, 4 GiB at most; --no-cache does without.

    \b
    Examples:
      analyze-traces cache info
      analyze-traces cache clear
    """  # noqa: D301 - click wants the character itself


@cache.command()
def info() -> None:
    """Say where it is and how much it holds."""
    from traceanalyzer.loading import store

    held = store.contents(_folder())
    click.echo(f"{held.folder}: {_held(held)}")


@cache.command()
def clear() -> None:
    """Remove all of it."""
    from traceanalyzer.loading import store

    held = store.clear(_folder())
    click.echo(f"Removed {_held(held)} from {held.folder}")


def _held(held: "Contents") -> str:
    from traceanalyzer.meaning.columns import size_text

    kinds = f"traces read: {held.read}, analysed: {held.analysed}, whole runs: {held.reports}"
    return f"{size_text(held.size_bytes)} ({kinds})"


def _folder() -> Path:
    from traceanalyzer.files.cached import default_folder

    folder = default_folder()
    if folder is None:
        raise UsageError("there is no cache: neither XDG_CACHE_HOME nor HOME names a folder")
    return folder
