"""`analyze-traces cache`: what is kept of large traces that were read."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from traceanalyzer.loading.cache import Contents


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cache() -> None:
    """Large traces that were read, and what was made of their ranks, kept for the next run.

    They lie in $XDG_CACHE_HOME/traceanalyzer, else ~/.cache/traceanalyzer, 4 GiB at most; --no-cache does without.

    \b
    Examples:
      analyze-traces cache info
      analyze-traces cache clear
    """  # noqa: D301 - click wants the character itself


@cache.command(context_settings={"help_option_names": ["-h", "--help"]})
def info() -> None:
    """Say where it is and how much it holds."""
    from traceanalyzer.loading import cache as kept

    held = kept.contents(_folder())
    click.echo(f"{held.folder}: {_held(held)}")


@cache.command(context_settings={"help_option_names": ["-h", "--help"]})
def clear() -> None:
    """Remove all of it."""
    from traceanalyzer.loading import cache as kept

    held = kept.clear(_folder())
    click.echo(f"Removed {_held(held)} from {held.folder}")


def _held(held: "Contents") -> str:
    from traceanalyzer.meaning.quantities import size_text

    kinds = f"traces read: {held.read}, analysed: {held.analysed}, whole runs: {held.reports}"
    return f"{size_text(held.size_bytes)} ({kinds})"


def _folder() -> Path:
    from traceanalyzer.files.cached import default_folder

    folder = default_folder()
    if folder is None:
        raise UsageError("there is no cache: neither XDG_CACHE_HOME nor HOME names a folder")
    return folder
