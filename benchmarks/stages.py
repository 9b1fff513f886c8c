"""Where a command's time goes: its stages by the clock and by CPU time, and what its forks did meanwhile.

    PYTHONPATH=. python benchmarks/stages.py --trace-dir FOLDER --output OUT --force --no-cache

Runs `analyze-traces` with these arguments in this process and prints two tables in Markdown: the stages of the command's
own process as they lie in each other (a stage's CPU time is this process' own; `forks` is that of forks that ended in
it), and of each process when it worked, for how long, at what it was longest. The first line of the summary comes where `shown` ends.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

BEGAN_S = time.perf_counter()

STAGES = {
    "traceanalyzer.cli": ("run", "finish"),
    "traceanalyzer.cli.report": ("_reported", "examined"),
    "traceanalyzer.scale": ("combine_tables",),
    "traceanalyzer.scale.work": ("reduce_rank", "give_back_memory"),
    "traceanalyzer.readers.kineto": ("_decoded", "trace_of"),
    "traceanalyzer.report.contents": ("find", "kept_run"),
    "traceanalyzer.loading.kept_ranks": ("kept", "keep"),
    "traceanalyzer.report.writers": ("_written",),
    "traceanalyzer.report.writers.html": ("page", "timeline_data"),
}
"""By the module that calls them."""

PIECES = {
    "traceanalyzer.execution": ("_work",),
    "traceanalyzer.decoding.tables": ("decoded",),
    "traceanalyzer.findings.conclude": ("_facts",),
}
"""What processes share."""


class Span(NamedTuple):
    """Something that a process did, in seconds since the command began."""

    process: int
    depth: int
    name: str
    began_s: float
    wall_s: float
    cpu_s: float
    forks_s: float


class Log:
    """A file to which this process and its forks append what they did."""

    def __init__(self, path: Path) -> None:
        self.place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.depth = 0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which then says when it ran; by the analysis or rule that is its argument, where it has one."""

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            own = next(filter(None, map(_what, args)), name) if name in _BY_ARGUMENT else name
            began, cpu, forks = time.perf_counter(), time.process_time(), _of_forks()
            self.depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1
                wall = time.perf_counter() - began
                times = (began - BEGAN_S, wall, time.process_time() - cpu, _of_forks() - forks)
                os.write(self.place, f"{json.dumps([os.getpid(), self.depth, own, *times])}\n".encode())

        return told


_BY_ARGUMENT = ("made", "of_rule")


def _what(argument: Any) -> str | None:
    return argument if isinstance(argument, str) else getattr(argument, "__name__", None)


def _of_forks() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Hook(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module when it has been loaded, so that nothing is loaded sooner than without it."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """The module's own, whose loader then wraps them."""
        if name not in {*STAGES, *PIECES, "traceanalyzer.analyses.engine"}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            self._wrap(name, module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign] - of this module's loader alone
        return spec

    def _wrap(self, name: str, module: ModuleType) -> None:
        for function in (*STAGES.get(name, ()), *PIECES.get(name, ())):
            setattr(module, function, self.log.timed(function.strip("_"), getattr(module, function)))
        if name == "traceanalyzer.analyses.engine":
            module._Care.made = self.log.timed("made", module._Care.made)  # noqa: SLF001 - each analysis passes here


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spans")
        sys.meta_path.insert(0, Hook(Log(path)))
        code = _run()
        spans = [Span(*json.loads(line)) for line in path.read_text().splitlines()]
    end_s = time.perf_counter() - BEGAN_S
    print(f"end {end_s:.2f} s, CPU {time.process_time():.2f} + {_of_forks():.2f} s, code {code}\n")
    stages = {name.strip("_") for names in STAGES.values() for name in names}
    print("| stage | from s | s | CPU s | forks s |\n|---|---|---|---|---|")
    for span in sorted((s for s in spans if s.process == os.getpid() and s.name in stages), key=lambda s: s.began_s):
        name = "· " * span.depth + span.name
        print(f"| {name} | {span.began_s:.3f} | {span.wall_s:.3f} | {span.cpu_s:.3f} | {span.forks_s:.3f} |")
    print("\n| process | from s | to s | CPU s | longest, s from, CPU s |\n|---|---|---|---|---|")
    for process in sorted({s.process for s in spans}):
        print(_row([s for s in spans if s.process == process]))


def _row(spans: list[Span]) -> str:
    begin, end = min(s.began_s for s in spans), max(s.began_s + s.wall_s for s in spans)
    least = min(s.depth for s in spans)
    inner = sorted((s for s in spans if s.name != "work"), key=lambda s: -s.cpu_s)[:6]
    longest = "; ".join(f"{s.name} {s.began_s:.2f} {s.cpu_s:.3f}" for s in inner)
    cpu_s = sum(s.cpu_s for s in spans if s.depth == least)
    return f"| {spans[0].process} | {begin:.3f} | {end:.3f} | {cpu_s:.3f} | {longest} |"


def _run() -> Any:
    """Run the command without its output; its code."""
    from traceanalyzer.__main__ import main as command  # noqa: PLC0415 - it is part of what is measured

    shown, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    code: Any = 0
    try:
        command()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    os.dup2(shown, 1)
    return code


if __name__ == "__main__":
    main()
