"""`analyze-traces what-if`: how long a step would take if something were different."""

import json
from collections.abc import Mapping
from typing import Any

import click

from traceanalyzer.cli.options import (
    FOLDER,
    JSON,
    UNPROFILED_STEP,
    Options,
    Source,
    command,
    input_options,
    option,
    talk_options,
    with_options,
)
from traceanalyzer.cli.output import of_run, print_notes
from traceanalyzer.errors import UsageError

_OF_RANKS = "[RANKS=]WHAT"

_PARTS: Mapping[str, tuple[str, str]] = {
    "rank": ("RANKS=WHAT", "Everything these ranks do themselves, such as 7=peers or 0-7=peers."),
    "cpu": (_OF_RANKS, "CPU work: none, peers, or 2x; of one rank 3=none."),
    "data": (_OF_RANKS, "Data loading: ready, or 2x."),
    "memory": (_OF_RANKS, "Calls that allocate or free GPU memory (cudaMalloc, cudaFree): none, or 2x."),
    "profiler": (_OF_RANKS, "Estimated profiler overhead: none; or with its least or most cost."),
    "compute": (_OF_RANKS, "Compute kernels: alone (as without communication beside them), peers, or 2x."),
    "copy": (_OF_RANKS, "Copies: free, peers, or 2x."),
    "comm": (_OF_RANKS, "Transfers: free, or 2x."),
    "waits": ("WHAT", "Waiting for other ranks: none."),
    "links": (_OF_RANKS, "Bus bandwidth of transfers in GB/s, such as 400."),
    "small": (_OF_RANKS, "Collectives of at most 1 MiB that buckets can hold: free, or 2x."),
    "stage": (_OF_RANKS, "A pipeline stage, counted from 0: 2=peers; all stages: even, or ideal (only the bubble)."),
    "schedule": ("WHAT", "Pipeline schedule: gpipe, 1f1b, interleaved (:2 stages per rank), zero-bubble."),
    "unmatched": ("WHAT", "Waiting in communication whose partners are not in the capture: none."),
    "delays": ("WHAT", "Start delays that no recorded dependency explains: none."),
    "sync": (
        _OF_RANKS, "CPU time blocked on the GPU: none; one call in one phase, cudaStreamSynchronize@optimizer=none.",
    ),
    "operator": ("NAME=WHAT", "What an operator launches, such as aten::mm=2x."),
    "kernel": ("NAME=WHAT", "Kernels whose name contains a text, such as flash=2x."),
    "collective": (
        "NAME=WHAT",
        "Transfers of a collective: all_reduce=2x; messages=2x; =usual as in other steps; =none: calls are not made.",
    ),
    "loop": ("NAME=WHAT", "CPU work in all but the first turn of a loop of table launch_loops: none, or 2x."),
}  # fmt: skip


_COMMON = ("rank", "cpu", "data", "compute", "comm", "operator")


def _changes(function: Any) -> Any:
    for name, (metavar, text) in reversed(list(_PARTS.items())):
        function = option(f"--{name} change_{name} {metavar}*", text, is_rare=name not in _COMMON)(function)
    return function


@command("what-if")
@FOLDER
@_changes
@UNPROFILED_STEP
@option("--in-steps LIST", "Change only these steps, such as 3,5-7.")
@JSON
@input_options()
@talk_options
@with_options
def what_if(source: Source, options: Options, in_steps: str | None, **changes: tuple[str, ...]) -> None:
    """Estimate the step time after a change, by replaying the recorded job.

    Each option changes a part of the job to WHAT: none, free, ready, peers (as on ranks that do the same), or
    a speedup such as 2x. Changes are made together. docs/what_if.md explains each one and how far to trust it.

    \b
    Examples:
      analyze-traces what-if profile/ddp --rank 1=peers
      analyze-traces what-if profile/ddp --cpu none --comm free
      analyze-traces what-if profile/ddp --operator aten::mm=2x --json
      analyze-traces what-if profile/pp --schedule 1f1b
    """  # noqa: D301 - click wants the character itself
    from rich.markup import escape

    from traceanalyzer.analyses.replay.changes import PARTS, change_of
    from traceanalyzer.findings.what_if import answer, needed
    from traceanalyzer.job.run_info import facts_of_run
    from traceanalyzer.meaning.columns import chosen
    from traceanalyzer.report.words import reasons, unused_step

    if source.is_of_all:
        raise UsageError("--select all: one run is replayed at a time; name its folder, or its files with --trace-file")
    steps = chosen(in_steps) if in_steps else None
    asked = [change_of(part, text, steps) for part in PARTS for text in changes[f"change_{part}"]]
    console = options.console
    found, _, _ = source.find_traces()
    run = found.runs[-1]
    facts = facts_of_run(run.info, [capture.path for capture in run.captures], source.unprofiled_step)
    names = (*needed(asked), "integrity", "ranks")
    summary = source.analysed(found, run, console, names=names, **facts.known)
    given = answer(summary.results, asked)
    doubts = reasons(summary.results).get("replay", ())
    notes = [*of_run(found, run, summary), *facts.notes, *facts.remarks, *unused_step(summary.results)]
    if options.as_json:
        click.echo(json.dumps({**given.to_dict(), "notes": [*doubts, *notes]}, indent=2))
        return
    lines = [f"[bold]{escape(', '.join(map(str, given.changes)))}[/]", *map(escape, given.lines())]
    for line in (*lines, *(f"[yellow]Read with care:[/] {escape(doubt)}" for doubt in doubts)):
        console.print(line, highlight=False, soft_wrap=True)
    print_notes(notes, console)
