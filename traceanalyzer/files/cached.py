"""Where what is made of files is kept, and by which name it is of one file as it is."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


def default_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The place for it in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`); `None` without a home."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        home = environment.get("HOME", "")
        if not Path(home).is_absolute():
            return None
        base = str(Path(home, ".cache"))
    return Path(base, "traceanalyzer", "traces")


def name_of(path: Path, state: os.stat_result, options: tuple[object, ...]) -> str:
    """What is made of the file in this state with these options is called so (64 digits).

    Raises:
        OSError: the file is gone.
    """
    place = str(path.resolve(strict=True))
    identity = (place, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)
    return hashlib.sha256(repr((identity, options)).encode(errors="surrogateescape")).hexdigest()
