"""`analyze-traces what-if`: how long a step would take if something were different."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli import one_run
from traceanalyzer.cli.options import PLACE, find_traces, input_options, load_options, progress, talk_options
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from traceanalyzer.analyses.replay.changes import Change

_PARTS: Mapping[str, str] = {
    "host": "The hosts' work: none, fastest, peers, or 2x; of some ranks 3=none.",
    "data": "Data loading: ready, or 2x.",
    "memory": "Calls that take GPU memory or give it back (cudaMalloc, cudaFree): none, or 2x.",
    "profiler": "What recording takes the hosts, as far as it can be estimated: none; with its least or most cost.",
    "compute": "Compute kernels: alone (as without communication beside them), peers, or 2x.",
    "copy": "Copies: free, peers, or 2x.",
    "comm": "Transfers: free, hidden, or 2x.",
    "waits": "Waiting for other ranks: none.",
    "links": "Transfers at a bus bandwidth in GB/s, such as 400.",
    "small": "Transfers of at most 1 MiB of collectives that buckets can hold: free, or 2x.",
    "stage": "A pipeline's stage, counted from 0: 2=peers; all stages: even, or ideal (only the schedule's bubble).",
    "schedule": "Another order of a pipeline's passes: gpipe, 1f1b, interleaved, zero-bubble; with stages a rank "
    "interleaved:2.",
    "delays": "Start delays that no recorded dependency explains: none.",
    "sync": "Blocking of the host until the GPU is done: none; of one call, in a phase, "
    "cudaStreamSynchronize@optimizer=none.",
}

_WHOLE = ("waits", "delays", "schedule")
"""Parts that the whole job has."""

_NAMED: Mapping[str, str] = {
    "operator": "What an operator launches, such as aten::mm=2x.",
    "kernel": "Kernels whose name contains a text, such as flash=2x.",
    "collective": "Transfers of a collective, such as all_reduce=2x, or of all sends and receives, messages=2x; in "
    "some steps as in others, all_reduce=usual.",
    "loop": "The hosts' work for all turns of a loop but the first, by its name in table launch_loops: none, or 2x.",
}


def _changes(function: Any) -> Any:
    for name, text in reversed(list(_NAMED.items())):
        function = click.option(f"--{name}", f"change_{name}", multiple=True, metavar="NAME=WHAT", help=text)(function)
    for name, text in reversed(list(_PARTS.items())):
        metavar = "WHAT" if name in _WHOLE else "[RANKS=]WHAT"
        function = click.option(f"--{name}", f"change_{name}", multiple=True, metavar=metavar, help=text)(function)
    return click.option(
        "--rank", "change_rank", multiple=True, metavar="RANKS=WHAT",
        help="All that ranks do themselves, such as 7=peers, or a node's 0-7=peers.",
    )(function)  # fmt: skip


@click.command("what-if", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=PLACE)
@_changes
@click.option("--in-steps", metavar="LIST", help="Change only these steps, such as 3,5-7.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@input_options
@talk_options
def what_if(folder: Path | None, **options: Any) -> None:
    """Replay the recorded job with changes, and say how long a step then takes.

    Every change is WHAT becomes of a part of the job: none, free, ready, peers (as on the ranks that do the same),
    fastest, or a factor of speed such as 2x. Changes are made together; docs/replay.md says what each one is, and how
    far to trust it.

    \b
    Examples:
      analyze-traces what-if profile/ddp --rank 1=peers
      analyze-traces what-if profile/ddp --host none --comm free
      analyze-traces what-if profile/ddp --operator aten::mm=2x --json
      analyze-traces what-if profile/ddp --compute 1.5x
      analyze-traces what-if profile/pp --schedule 1f1b
    """  # noqa: D301 - click wants the character itself
    from rich.console import Console
    from rich.markup import escape

    from traceanalyzer.analyses.replay.what_if import answer, needed
    from traceanalyzer.report.words import reasons
    from traceanalyzer.scale import summarise

    if options["select"] == "all":
        raise UsageError("--select all: one run is replayed at a time; name its folder, or its files with --trace-file")
    changes = list(changes_of(options))
    console = Console(quiet=options["quiet"])
    found, _ = find_traces(
        folder,
        options["trace_dir"],
        options["trace_files"],
        options["rank_regex"],
        follows_links=options["follow_links"],
    )
    run = found.runs[-1]
    with progress(console, len(run.captures)) as advance:
        load = load_options(options)
        names = (*needed(changes), "integrity", "ranks")
        summary = summarise(found, run, load, names=names, jobs=options["jobs"], progress=advance)
    given = answer(summary.results, changes)
    doubts = reasons(summary.results).get("replay", ())
    notes = one_run.of_run(found, run, summary)
    if options["as_json"]:
        click.echo(json.dumps({**given.to_dict(), "notes": [*doubts, *notes]}, indent=2))
        return
    console.print(f"[bold]{escape(', '.join(map(str, given.changes)))}[/]", highlight=False)
    for line in given.lines():
        console.print(escape(line), highlight=False, soft_wrap=True)
    for doubt in doubts:
        console.print(f"[yellow]Read with care:[/] {escape(doubt)}", highlight=False, soft_wrap=True)
    one_run.left_out_say(notes, console)


def changes_of(options: dict[str, Any]) -> "Iterator[Change]":
    """The changes that the options ask for.

    Raises:
        UsageError: one makes no sense.
    """
    from traceanalyzer.analyses.replay.changes import PARTS, change_of
    from traceanalyzer.meaning.columns import chosen

    steps = chosen(options["in_steps"]) if options["in_steps"] else None
    for part in PARTS:
        yield from (change_of(part, text, steps) for text in options[f"change_{part}"])
