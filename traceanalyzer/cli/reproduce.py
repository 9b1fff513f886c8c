"""`analyze-traces reproduce`: one operator as a script that times it."""

from pathlib import Path

import click

from traceanalyzer.cli.options import PLACE
from traceanalyzer.cli.own_files import refuse_others


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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

    from traceanalyzer.cli import left_out
    from traceanalyzer.export.reproduce import reproduce as written
    from traceanalyzer.files.whole import whole_file
    from traceanalyzer.loading import load

    path = output or Path(f"reproduce_{operator.replace('::', '_')}.py")
    refuse_others(path, b"analyze-traces reproduce", force=force)
    traces = load(folder, ranks=rank)
    script = written(traces, operator, rank=rank, variant=variant, file=path.name)
    with whole_file(path) as draft:
        draft.write_text(script, encoding="utf-8")
    left_out.say(left_out.of_traces(traces), Console())
    click.echo(f"Script: {path}")
