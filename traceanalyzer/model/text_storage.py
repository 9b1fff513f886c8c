"""How pandas keeps texts while the library works: a setting of the process, which its user has back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pandas as pd

_NAME, _OURS = "mode.string_storage", "python"

_lock = Lock()

_found: list[str] = []
"""The setting as each of those that work now found it: several threads may, and each may begin within itself again."""


@contextmanager
def texts_in_python() -> Iterator[None]:
    """Meanwhile texts are made as Python has them: of Arrow's each look-up and each row costs ten times as much.

    It has no effect on any figure. The last one that ends puts back what the first one found, unless the setting was
    changed from outside in the meantime.
    """
    with _lock:
        _found.append(pd.get_option(_NAME))
        pd.set_option(_NAME, _OURS)
    try:
        yield
    finally:
        with _lock:
            before = _found.pop()
            if not _found and pd.get_option(_NAME) == _OURS:
                pd.set_option(_NAME, before)
