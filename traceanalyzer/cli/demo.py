"""`analyze-traces demo`: a report of a capture that comes with the program."""

from pathlib import Path

import click

from traceanalyzer.cli.options import PLACE
from traceanalyzer.cli.report import report
from traceanalyzer.samples import SAMPLES


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(SAMPLES), default=SAMPLES[0])
@click.option("--output", "-o", type=PLACE, default=Path("reports", "demo"), show_default=True, metavar="FOLDER",
              help="Where to write.")  # fmt: skip
@click.option("--open", "open_page", is_flag=True, help="Open the report in the browser.")
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
