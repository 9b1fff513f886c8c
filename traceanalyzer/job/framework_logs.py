"""What a training framework logged beside the traces: the step without the profiler, and peaks of GPU memory."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from traceanalyzer.errors import UsageError
from traceanalyzer.files import whole
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.rows import LATEST_NS

KEY = "unprofiled_step_ns"
"""What analyses call it."""

_SUFFIXES = (".txt", ".log", ".out")

_ITERATION = re.compile(r"iteration_\d+")
"""torchtitan's folder for one capture: <dump folder>/profile_traces/iteration_15."""

_STEP_LINE = re.compile(
    r"^(?P<who>.*?)\[titan\] (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - .*? - step: *(?P<step>\d+) ", re.MULTILINE
)
"""torchtitan's line of a step on standard output, as torchrun prefixes it."""

_MEMORY = re.compile(r"^.*?(?:\[rank(\d{1,6})\]:)?\[titan\] .*? memory: *([\d.]{1,9})GiB", re.MULTILINE)
"""What its allocator had reserved at most in the steps since the last such line (`components/metrics.py`)."""

_COLOR = re.compile("\x1b\\[[0-9;]*m")

_TRAINER = ("trainer_state.json", "all_results.json", "train_results.json")
"""Files of Hugging Face's Trainer."""

_TRAINED_PEAK = (
    "before_init_mem_gpu", "init_mem_gpu_alloc_delta", "train_mem_gpu_alloc_delta", "train_mem_gpu_peaked_delta",
)  # fmt: skip
"""With `skip_memory_metrics=False` these bytes add up to what its first process had allocated at most in training."""


class LoggedStep(Struct, frozen=True):
    """A mean step and the file that tells it."""

    ns: int
    path: Path


def known_step(
    known: Mapping[str, Any], places: Sequence[Path], given_ms: float | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The step without the profiler by parameter name, with a sentence that says where it was found.

    What the user gives comes first, then run.json (in `known`), then a framework's log beside the traces, whose folders
    are `places`; nothing where none tells it.

    Raises:
        UsageError: the given one is no time.
    """
    if given_ms is not None:
        return {KEY: given_step_ns(given_ms)}, ()
    if KEY in known:
        return {KEY: known[KEY]}, ()
    logged = logged_step(Path(os.path.commonpath([place.absolute() for place in places])))
    if logged is None:
        return {}, ()
    return {KEY: logged.ns}, (f"Step without the profiler: {time_text(logged.ns)}, from {logged.path.name}.",)


def given_step_ns(given_ms: float) -> int:
    """The step that the user gives.

    Raises:
        UsageError: it is no time.
    """
    if not 0 < given_ms * 1e6 < LATEST_NS:
        raise UsageError(f"--unprofiled-step {given_ms}: give the mean step without the profiler in ms")
    return round(given_ms * 1e6)


def logged_step(folder: Path) -> LoggedStep | None:
    """The step that a log beside traces tells: torchtitan's structured log or lines, or Hugging Face's Trainer's files.

    Of torchtitan the median, as few of its steps are profiled.
    """
    of_job = _of_job(folder)
    sources = (
        (_structured, sorted((of_job / "structured_logs").glob("*.jsonl"))[:1]),
        (_lines, _texts(folder, of_job)),
        (_trainer, _of_trainer(folder)),
    )
    for read, paths in sources:
        for path in paths:
            if (text := _text(path)) is not None and (ns := read(text)) is not None and 0 < ns < LATEST_NS:
                return LoggedStep(round(ns), path)
    return None


def logged_memory(folder: Path) -> dict[str, dict[int, dict[str, int]]]:
    """Each rank's peak by torchtitan's lines, or rank 0's by the Trainer's results, as `run_memory` of analyses.

    Nothing where neither lies beside the traces.
    """
    sources = ((_reserved, _texts(folder, _of_job(folder))), (_allocated, _of_trainer(folder)))
    for read, paths in sources:
        for path in paths:
            if peaks := read(_text(path) or ""):
                return {"run_memory": peaks}
    return {}


def _reserved(text: str) -> dict[int, dict[str, int]]:
    found = [(int(rank or 0), round(float(gib) * (1 << 30)))
             for rank, gib in _MEMORY.findall(_COLOR.sub("", text) if "[titan]" in text else "")]  # fmt: skip
    return {rank: {"peak_reserved_bytes": peak} for rank, peak in sorted(found, key=lambda one: one[1])}


def _allocated(text: str) -> dict[int, dict[str, int]]:
    parts = [_record(text).get(name) for name in _TRAINED_PEAK]
    known = [part for part in parts if type(part) is int]
    return {0: {"peak_allocated_bytes": sum(known)}} if len(known) == len(parts) and sum(known) > 0 else {}


def _of_trainer(folder: Path) -> list[Path]:
    return [place / name for place in (folder, folder.parent) for name in _TRAINER]


def _of_job(folder: Path) -> Path:
    """The dump folder of torchtitan, of one of its captures."""
    return folder.parents[1] if _ITERATION.fullmatch(folder.name) and len(folder.parents) > 1 else folder


def _texts(*folders: Path) -> list[Path]:
    return [path for folder in dict.fromkeys(folders) for path in sorted(folder.glob("*.*"))
            if path.suffix.lower() in _SUFFIXES]  # fmt: skip


def _text(path: Path) -> str | None:
    """The file's text; `None` where there is none that may be read, or a very long one."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        return whole.content(path).decode("utf-8", errors="replace")
    except OSError:
        return None


def _structured(text: str) -> float | None:
    """Median time in ns between the begins of torchtitan's steps."""
    begins = [line for line in text.splitlines() if '"step_start"' in line]
    records = [each for each in map(_record, begins) if each.get("log_type_name") == "step_start"]
    return _between_steps((int(_number(each.get("step"))), 1e3 * _number(each.get("time_us"))) for each in records)


def _record(text: str) -> dict[str, Any]:
    """A JSON object; an empty one where the text is none, such as a line that is cut."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lines(text: str) -> float | None:
    """Median time in ns of the steps between torchtitan's lines, of the first process that printed any."""
    found = [*_STEP_LINE.finditer(_COLOR.sub("", text))] if "[titan]" in text else []
    own = [each for each in found if each["who"] == found[0]["who"]]
    return _between_steps(
        # Only differences of times count.
        (int(each["step"]), datetime.strptime(each["time"], "%Y-%m-%d %H:%M:%S,%f").timestamp() * 1e9)  # noqa: DTZ007
        for each in own
    )


def _between_steps(moments: Iterator[tuple[int, float]]) -> float | None:
    gaps = [(after - before) / (later - step) for (step, before), (later, after) in pairwise(moments) if later > step]
    return median(gaps) if gaps else None


def _trainer(text: str) -> float | None:
    """Mean step in ns of Hugging Face's Trainer, over the whole training."""
    found = _record(text)
    history = found.get("log_history")
    every = [each for each in [found, *(history if isinstance(history, list) else [])] if isinstance(each, dict)]
    for each in reversed(every):
        runtime, steps, rate = (_number(each.get(key)) for key in ("train_runtime", "step", "train_steps_per_second"))
        if runtime and (steps or rate):
            return 1e9 * (runtime / steps if steps else 1 / rate)
    return None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
