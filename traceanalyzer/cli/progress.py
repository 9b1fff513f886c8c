"""How far a command is with its files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress(console: "Console", files: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call as files are done; a bar only on a terminal, for several files."""
    from rich.progress import Progress

    with Progress(console=console, transient=True, disable=not console.is_terminal or files < 2) as bar:
        task = bar.add_task("Reading traces", total=files)
        yield lambda done, _all: bar.update(task, completed=done)
