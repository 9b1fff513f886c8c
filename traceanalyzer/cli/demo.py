"""`analyze-traces demo`: a report of a capture that comes with the program."""

from pathlib import Path

import click

from traceanalyzer.cli.options import OPEN, output_option
from traceanalyzer.cli.report import report
from traceanalyzer.samples import SAMPLES


@click.command()
@click.argument("name", type=click.Choice(SAMPLES), default=SAMPLES[0])
@output_option(Path("reports", "demo"))
@OPEN
def demo(name: str, output: Path, open_page: bool) -> int:
    """Analyse a capture that comes with the program: no GPU and no traces are needed.

    pp_1f1b is a pipeline of two stages on two H200, one of which makes the other wait; simple_ddp and pytorch_ddp are
    the same model with data parallelism, without and with overlap.
    """
    from traceanalyzer.samples import sample

    click.echo(f"$ analyze-traces {sample(name)}\n")
    arguments = [str(sample(name)), "--output", str(output), *(["--open"] if open_page else [])]
    code: int = report.main(arguments, standalone_mode=False)
    naive, overlapped = sample("simple_ddp"), sample("pytorch_ddp")
    click.echo("\nNext, the same with your own traces (README: How to record traces), or on samples:")
    click.echo(f"  analyze-traces diff {naive} {overlapped}")
    click.echo(f"  analyze-traces what-if {sample()} --rank 1=2x")
    click.echo(f"  analyze-traces export {sample(name)}")
    return code
