"""`analyze-traces demo`: a report of a sample capture."""

from pathlib import Path

import click

from traceanalyzer.cli.options import OPEN, command, option
from traceanalyzer.cli.report import report
from traceanalyzer.samples import SAMPLES, sample


@command()
@click.argument("name", type=click.Choice(SAMPLES), default=SAMPLES[0])
@option("--output -o FOLDER", "Where to write.", default=Path("reports", "demo"))
@OPEN
def demo(name: str, output: Path, open_page: bool) -> int:
    """Analyze a sample capture; needs no GPU and no traces.

    pp_1f1b is a two-stage pipeline on two H200 GPUs whose stages are unbalanced. simple_ddp and pytorch_ddp are the
    same model with data parallelism, without and with overlap.
    """
    click.echo(f"$ analyze-traces {sample(name)}\n")
    arguments = [str(sample(name)), "--output", str(output), *(["--open"] if open_page else [])]
    code: int = report.main(arguments, standalone_mode=False)
    click.echo(
        "\nNext, analyze your own traces (docs/recording.md), or try on samples:\n"
        f"  analyze-traces diff {sample('simple_ddp')} {sample('pytorch_ddp')}\n"
        f"  analyze-traces what-if {sample()} --rank 1=2x\n"
        f"  analyze-traces export {sample(name)}"
    )
    return code
