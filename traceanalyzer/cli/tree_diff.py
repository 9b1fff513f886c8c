"""`analyze-traces tree-diff`: where the operator trees of two runs part."""

import json
from pathlib import Path

import click

from traceanalyzer.cli.options import PLACE


@click.command("tree-diff", context_settings={"help_option_names": ["-h", "--help"]})
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

    from traceanalyzer.cli import left_out
    from traceanalyzer.diff.tree_diff import tree_diff as parted
    from traceanalyzer.loading import load

    one, two = (load(folder, ranks=rank) for folder in (base, other))
    table = parted(one[0], two[0], (step, step))
    ranks = f"Rank {one[0].rank} of {one.label} is held against rank {two[0].rank} of {two.label}."
    notes = [ranks] if one[0].rank != two[0].rank else []
    notes += [f"{side.label}: {note}" for side in (one, two) for note in left_out.of_traces(side)]
    left_out.say(notes, Console(stderr=as_json))
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
