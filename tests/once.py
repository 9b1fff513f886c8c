"""What captures of the repository give, made once a test run: the processes of a parallel one share it on disk."""

import fcntl
import hashlib
import os
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.samples import RUNNERS, SAMPLES, folder, sample
from traceanalyzer import scale
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.discovery import discover
from traceanalyzer.loading import LoadOptions

SHARED = "TRACEANALYZER_TESTS_SHARED"
"""The variable that names the run's folder; `conftest.py` makes it."""

_summarise = scale.summarise


def results(name, names=ANALYSES):
    """The named Results of a sample, whole, with no thresholds given: those that the command makes of its folder."""
    made = _results(name)
    return {one: made[one] for one in names}


@cache
def _results(name):
    if name == "streams":  # as many runs as files, of which the command takes one
        return once("results of streams", lambda: run(sample(name).ranks))
    found = discover(folder(name))
    return summarise(found, found.runs[-1], LoadOptions()).results


def summarise(found, run, options, *, names=ANALYSES, jobs=None, progress=None, **more):
    """As `traceanalyzer.scale.summarise`; of captures of the repository and small files each content is analysed once."""
    paths = [capture.path for capture in run.captures]
    more.pop("first", None)  # all are at hand
    # Guarded or not, nothing fails in them; and what is not given is as if it were not named.
    given = {name: value for name, value in more.items() if name != "is_guarded" and value is not None}
    shown = repr((run, found, options, tuple(names), sorted(given.items())))
    if not all(_is_ours(path) for path in paths) or jobs not in {None, 1} or " at 0x" in shown:
        return _summarise(found, run, options, names=names, jobs=jobs, progress=progress, **more)
    for path in paths:
        shown = shown.replace(f"'{path.parent}/", "'/") + hashlib.sha256(path.read_bytes()).hexdigest()
    made = once(shown, lambda: _placed(_summarise(found, run, options, names=names, jobs=1, **more), paths.index))
    if progress:
        progress(len(paths), len(paths))
    return _placed(made, paths.__getitem__)


CHANGED = []
"""What the running test has put in another's place (`conftest.monkeypatch`): its own files are analysed with that."""

_SMALL = 100_000


def _is_ours(path):
    if not path.is_file():
        return False
    size = path.stat().st_size
    return (path.name, size) in _captures() or (size < _SMALL and not CHANGED)


@cache
def _captures():
    files = [path for folder in (SAMPLES, RUNNERS) for path in folder.rglob("*") if path.is_file()]
    return {(path.name, path.stat().st_size) for path in files}


def _placed(summary, place):
    """The summary with other places of its files."""
    return replace(summary, claims={(place(path), rank): own for (path, rank), own in summary.claims.items()})


def once(key, make):
    """What `make` gave for this key, here or in another process of the run."""
    if key not in _MADE:
        path = Path(os.environ[SHARED], hashlib.sha256(key.encode()).hexdigest())
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_bytes(pickle.dumps(make()))
            _MADE[key] = pickle.loads(path.read_bytes())
    return _MADE[key]


_MADE = {}
