"""`analyze-traces tools`: project, crosscheck, reproduce, tree-diff, cache."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli.options import (
    FOLDER,
    FORCE,
    JSON,
    LINKS,
    PLACE,
    Decorator,
    Group,
    Options,
    Source,
    input_options,
    option,
    talk_options,
    with_options,
)
from traceanalyzer.cli.output import console_of, of_traces, print_notes, refuse_others, say
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.loading.store import Contents


@click.group(cls=Group)
def tools() -> None:
    """Project to more ranks, compare with other tools, time one operator, manage the cache.

    \b
    Examples:
      analyze-traces tools project profile/ddp --to 4,8,64
      analyze-traces tools crosscheck profile/ddp
      analyze-traces tools reproduce profile/ddp aten::mm
      analyze-traces tools tree-diff profile/eager profile/fused
      analyze-traces tools cache info
    """  # noqa: D301 - click wants the character itself


_FOLDER = click.argument("folder", type=PLACE)


def _one_rank(what: str) -> Decorator:
    return option("--ranks rank RANK", what)


# `tools project`: a measured run on more ranks.


@tools.command()
@FOLDER
@option("--to LIST", "Numbers of ranks.", default="4,8,64")
@option("--network GB/s", "Bus bandwidth between hosts (default: that of the recorded links).", type=float)
@JSON
@input_options()
@talk_options
@with_options
def project(source: Source, options: Options, to: str, network: float | None) -> None:
    """Expect a step on more ranks, by replaying the job with transfers that the ring and tree models lengthen.

    Also what each collective should cost, and what each way to shard the model holds and exchanges. Expected figures,
    not measured ones: the assumptions are printed.
    """
    from traceanalyzer.analyses.replay.projection import NEEDED
    from traceanalyzer.analyses.replay.projection import project as projected
    from traceanalyzer.job import run_info
    from traceanalyzer.meaning.columns import Unit, chosen, in_a_line
    from traceanalyzer.report.table_view import console_table, view_of

    found, _, _ = source.find_traces()
    run = found.runs[-1]
    info, _ = run_info.read_or_note(run.info)
    known = run_info.thresholds(info)
    summary = source.analysed(found, run, options.console, names=NEEDED, **known)
    model = run_info.trained_model(info) if info else None
    made = projected(summary.results, sorted(chosen(to)), model=model, network_gbps=network)
    tables = {"ranks": made.by_ranks, "strategies": made.by_strategy, "collectives": made.collectives}
    if options.as_json:
        rows = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
        click.echo(json.dumps({"measured": {"ranks": made.ranks, "step_ns": made.step_ns}, "expected": rows,
                               "assumptions": made.assumptions}, indent=1))  # fmt: skip
        return
    console = options.console
    say(console, f"Measured: {made.ranks} ranks, {in_a_line(made.step_ns, Unit.NS)} a step. Expected, not measured:")
    for name, table in tables.items():
        if len(table):
            console.print(console_table(view_of(table, name, {}), console.width))
    say(console, *(f"Assumes: {line}" for line in made.assumptions))


# `tools crosscheck`: our figures beside HolisticTraceAnalysis'.


_READABLE = (".gz", ".json")


@tools.command()
@_FOLDER
@LINKS
@JSON
def crosscheck(folder: Path, follow_links: bool, as_json: bool) -> None:
    """Show figures of the whole trace beside HolisticTraceAnalysis', and the reasons for each difference.

    HolisticTraceAnalysis reads PyTorch profiler files itself; other traces are converted for it. Needs the extra: pip
    install '.[hta]' in the clone. JSON has times in nanoseconds.
    """
    from traceanalyzer.discovery import discover
    from traceanalyzer.export.hta import crosscheck as checked
    from traceanalyzer.loading import load

    run = discover(folder, follows_links=follow_links).runs[-1]
    traces = load([capture.path for capture in run.captures])
    table = checked(traces, _files(run, {trace.rank for trace in traces}))
    if as_json:
        click.echo(json.dumps(json.loads(table.to_json(orient="records")), indent=1))
        return
    console = console_of()
    for row in table.to_dict("records"):
        for line in _compared(row):
            console.print(line, highlight=False, soft_wrap=True)


def _files(run: "Run", ranks: set[int]) -> dict[int, Path] | None:
    """The files by rank, if its reader can read every one."""
    files = {capture.ranks[0]: capture.path for capture in run.captures if len(capture.ranks) == 1}
    is_its = set(files) == ranks and all(path.name.endswith(_READABLE) for path in files.values())
    return files if is_its else None


def _compared(row: Mapping[str, Any]) -> list[str]:
    """One figure of both tools, and a line for each reason of the difference."""
    from traceanalyzer.export.hta import REASONS
    from traceanalyzer.meaning.columns import Unit, stem, unit_of

    is_pct = unit_of(row["figure"]) is Unit.PCT

    def text(value: float, sign: str = "+") -> str:
        if value != value:  # noqa: PLR0124 - not a number
            return "n/a"
        return f"{value:{sign}.3f}%" if is_pct else f"{value / 1e6:{sign},.4f} ms"

    both = f"ours {text(row['ours'], '')}, HolisticTraceAnalysis {text(row['hta'], '')} ({text(row['difference'])})"
    return [
        f"[bold]rank {row['rank']} {stem(row['figure']).replace('_', ' ')}[/]: {both}",
        *(
            f"    {value}  {reason}"
            for reason in (*REASONS, "unexplained")
            if re.search("[1-9]", value := text(row[reason]))
        ),
    ]


# `tools reproduce`: one operator as a script that times it.


@tools.command()
@_FOLDER
@click.argument("operator")
@_one_rank("Rank whose calls to use (default: the first).")
@option("--variant N", "Which shapes, strides and types: 0 takes most GPU time, 1 the next most.",
        type=click.IntRange(min=0), default=0)  # fmt: skip
@option("--output -o FILE", "Script to write (default: reproduce_<operator>.py).")
@FORCE
def reproduce(folder: Path, operator: str, rank: int | None, variant: int, output: Path | None, *, force: bool) -> None:
    """Write a script that calls OPERATOR (such as aten::mm) with the job's shapes, strides and types, and times it.

    The script needs only torch. The traces must be from the PyTorch profiler with record_shapes=True.
    """
    from traceanalyzer.export.reproduce import reproduce as written
    from traceanalyzer.files.whole import whole_file
    from traceanalyzer.loading import load

    path = output or Path(f"reproduce_{operator.replace('::', '_')}.py")
    refuse_others(path, b"Made by analyze-traces", force=force)
    traces = load(folder, ranks=rank)
    script = written(traces, operator, rank=rank, variant=variant, file=path.name)
    with whole_file(path) as draft:
        draft.write_text(script, encoding="utf-8")
    print_notes(of_traces(traces), console_of())
    click.echo(f"Script: {path}")


# `tools tree-diff`: where the operator trees of two runs differ.


@tools.command("tree-diff")
@click.argument("base", type=PLACE)
@click.argument("other", type=PLACE)
@_one_rank("Rank to compare (default: the first of each run).")
@option("--steps step STEP", "Step to compare (default: the first complete one of each run).")
@option("--top N", "Rows to print.", default=20)
@JSON
def tree_diff(base: Path, other: Path, rank: int | None, step: int | None, top: int, as_json: bool) -> None:
    """Show where a step of OTHER calls other operators than BASE, with their GPU and CPU time.

    Both must be PyTorch profiler traces. JSON has all rows.
    """
    from rich.markup import escape

    from traceanalyzer.diff.tree_diff import tree_diff as parted
    from traceanalyzer.loading import load

    console = console_of(as_json=as_json)
    one, two = (load(folder, ranks=rank) for folder in (base, other))
    table = parted(one[0], two[0], (step, step))
    ranks = f"Rank {one[0].rank} of {one.label} is compared with rank {two[0].rank} of {two.label}."
    notes = [ranks] if one[0].rank != two[0].rank else []
    print_notes([*notes, *(f"{side.label}: {note}" for side in (one, two) for note in of_traces(side))], console)
    if as_json:
        click.echo(json.dumps(table.to_dict("records"), indent=1))
        return
    if table.empty:
        say(console, "The trees are the same: both steps call the same operators in the same order.")
    for row in table.head(top).to_dict("records"):
        gpu, cpu = (
            f"{name} {row[f'base_{column}_ns'] / 1e6:,.3f} → {row[f'other_{column}_ns'] / 1e6:,.3f} ms"
            for name, column in (("GPU", "gpu"), ("CPU", "host"))
        )
        places = f"{row['places']} places" if row["places"] > 1 else "1 place"
        console.print(f"[bold]{escape(row['path']) or 'at the top'}[/] ({places}; {gpu}; {cpu})", highlight=False)
        console.print(f"  [red]−[/] {escape(row['base']) or 'nothing'}", highlight=False)
        console.print(f"  [green]+[/] {escape(row['other']) or 'nothing'}", highlight=False)
    if len(table) > top:
        say(console, f"{len(table) - top} more rows: --top, or --json for all")


# `tools cache`: what is kept of large traces.


@tools.group(cls=Group)
def cache() -> None:
    """Show or clear the cache of traces that were read.

    It is at $XDG_CACHE_HOME/traceanalyzer, else ~/.cache/traceanalyzer, and holds at most 4 GiB; --no-cache of the
    other commands does without it.
    """


@cache.command()
def info() -> None:
    """Show where the cache is and how much it holds."""
    from traceanalyzer.loading import store

    found = store.contents(_cache())
    click.echo(f"{found.folder}: {_contents(found)}")


@cache.command()
def clear() -> None:
    """Remove the cache."""
    from traceanalyzer.loading import store

    found = store.clear(_cache())
    click.echo(f"Removed {_contents(found)} from {found.folder}")


def _contents(found: "Contents") -> str:
    from traceanalyzer.meaning.columns import size_text

    kinds = f"traces read: {found.read}, analyzed: {found.analysed}, whole runs: {found.reports}"
    return f"{size_text(found.size_bytes)} ({kinds})"


def _cache() -> Path:
    from traceanalyzer.loading.store import default_folder

    folder = default_folder()
    if folder is None:
        raise UsageError("there is no cache: neither XDG_CACHE_HOME nor HOME names a folder")
    return folder
