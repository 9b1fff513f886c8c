"""How far a command is with its files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress(console: "Console", files: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call as files are done; a bar only on a terminal, for several files."""
    if not console.is_terminal or files == 1:
        yield lambda _done, _all: None
        return
    from rich.progress import Progress

    # Drawn as files are done, without a thread of its own: a process with threads cannot be forked.
    with Progress(console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("Reading traces", total=files)
        yield lambda done, _all: bar.update(task, completed=done, refresh=True)
