"""What is known of a job beside its traces: run.json, hosts, topology, logs of training frameworks."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pandas as pd
from msgspec import Struct

from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files import whole
from traceanalyzer.job.model_state import Model
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model.schema import printable

# What ran, as the run.json beside the traces tells: strategy, model, batch, dtype, speed without a profiler.


KNOWN_VERSION = 1

MOST = 10**15
"""Bytes, parameters and samples that a run may count: what is more is no count."""

MOST_OF_STEP = 1 << 62
"""FLOPs of a rank, or nanoseconds, likewise: an hour of the fastest GPU, and a hundred years."""


class StepTime(msgspec.Struct, frozen=True):
    """Step times without a profiler: mean, sample standard deviation, count and each value."""

    mean: int | float | None = None
    std: int | float | None = None
    n: int | None = None
    values: tuple[int | float, ...] = ()


class StepTimes(msgspec.Struct, frozen=True):
    """Step times by how they were measured."""

    unprofiled: StepTime | None = None


class Batch(msgspec.Struct, frozen=True):
    """What one optimizer step consumes, over all ranks."""

    micro_batch: int | None = None
    grad_accum: int | None = None
    global_batch: int | None = None
    tokens_per_step: int | None = None


class RunInfo(msgspec.Struct, frozen=True):
    """The fields of run.json that are used; fields that are absent are `None`, unknown ones are ignored."""

    strategy: str | None = None
    world_size: int | None = None
    format_version: int | None = None
    status: str | None = None
    error: str | None = None
    model: dict[str, Any] | None = None
    batch: Batch | None = None
    dtype: str | None = None
    param_dtype: str | None = None
    seed: int | None = None
    compile: bool | None = None
    activation_checkpointing: bool | None = None
    step_time_ns: StepTimes | None = None
    tokens_per_s: float | None = None
    model_flops_per_step: int | float | None = None
    memory: tuple[dict[str, Any] | None, ...] | None = None
    gpu: dict[str, Any] | None = None
    versions: dict[str, str | None] | None = None
    parallel: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    topology: str | None = None
    hosts: tuple[str | None, ...] | None = None
    environment: dict[str, str] | None = None
    transports: tuple[str, ...] | None = None

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens that one optimizer step consumes over all ranks."""
        return self.batch.tokens_per_step if self.batch else None

    @property
    def unprofiled(self) -> StepTime | None:
        """Step time without a profiler."""
        return self.step_time_ns.unprofiled if self.step_time_ns else None


class StatedWork(Struct, frozen=True):
    """What a run says of its own work.

    Attributes:
        flops_of_rank: model FLOPs of a step, divided by the ranks.
        dtype: element type of its matrix products, as `bf16`.
    """

    flops_of_rank: float
    dtype: str | None


def read(path: Path) -> RunInfo:
    """Read a run.json.

    Raises:
        InputError: it cannot be read, is no JSON object, or a field that is used has another type than it should.
    """
    try:
        return msgspec.convert(legible(msgspec.json.decode(path.read_bytes())), RunInfo)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a run.json that can be used ({error})") from error


def legible(value: Any) -> Any:
    """The same with printable texts, but for a topology, which is a text of lines, and without absurd counts.

    An integer beyond 64 bits is `None`: nothing that is counted has as many.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [legible(one) for one in value]
    if isinstance(value, dict):
        return {printable(name): one if name == "topology" else legible(one) for name, one in value.items()}
    return None if type(value) is int and abs(value) >= 1 << 63 else value


def read_or_note(path: Path | None) -> tuple[RunInfo | None, tuple[str, ...]]:
    """The run's information, or a sentence that says why there is none; neither without a file."""
    if path is None:
        return None, ()
    try:
        info = read(path)
    except InputError as error:
        return None, (f"{error}; the comparison and report go on without it.",)
    if info.format_version is not None and info.format_version > KNOWN_VERSION:
        return info, (f"{path} is of a newer format ({info.format_version}); fields that changed are not understood.",)
    return info, ()


def thresholds(info: RunInfo | None) -> dict[str, Any]:
    """What analyses take from the run's own record, by parameter name."""
    if info is None:
        return {}
    found: dict[str, Any] = {}
    mean = info.unprofiled.mean if info.unprofiled else None
    if mean is not None and 0 < mean < MOST_OF_STEP:
        found["unprofiled_step_ns"] = round(mean)
    if memory := peak_memory(info):
        found["run_memory"] = memory
    if info.hosts:
        found["run_hosts"] = {rank: host for rank, host in enumerate(info.hosts) if host}
    if trained := trained_model(info):
        found["trained_model"] = trained
    flops, ranks = info.model_flops_per_step or 0, info.world_size or 0
    if 0 < ranks < RANKS:
        found["run_world_size"] = ranks
    if ranks > 0 and 0 < flops / ranks < MOST_OF_STEP:
        found["stated_work"] = StatedWork(flops / ranks, info.dtype)
    return found


_SHARING = (
    ("zero1", re.compile(r"zero_?1|zero_?redundancy", re.IGNORECASE)),
    ("zero2", re.compile(r"zero_?2|shard_?grad", re.IGNORECASE)),
    ("zero3", re.compile(r"zero_?3|fsdp", re.IGNORECASE)),
    ("ddp", re.compile(r"ddp|naive|single|^tp$|^pp", re.IGNORECASE)),
)
"""What a strategy's name says of how state is shared; of others nothing is expected."""


_CUT = re.compile(r"(?:tp|pp)(?:_|$)", re.IGNORECASE)
"""Strategies that cut the model itself."""


def trained_model(info: RunInfo) -> Model | None:
    """What is known of the model and its training; `None` without parameters, or for a strategy that trains otherwise.

    Parameters, gradients and optimizer are in fp32, as the runners keep them; products may be in 16 bits.
    """
    facts, parallel, batch = _integers(info.model), _integers(info.parallel), info.batch
    strategy = next((name for name, pattern in _SHARING if pattern.search(info.strategy or "")), None)
    if "parameters" not in facts or strategy is None:
        return None
    if _CUT.match(info.strategy or "") and not parallel:  # of a run that failed: by how many it is cut is not known
        return None
    tp, pp = parallel.get("tp", 1), parallel.get("pp", 1)
    return Model(
        params=facts["parameters"],
        layers=facts.get("layers"),
        d_model=facts.get("d_model"),
        vocab=facts.get("vocab"),
        seq=facts.get("seq_len"),
        batch=_integers({"": batch.micro_batch if batch else None}).get(""),
        precision="fp32" if info.dtype == "fp32" else "autocast",
        dp=parallel.get("dp"),
        tp=tp,
        pp=pp,
        microbatches=parallel.get("microbatches"),
        strategy=strategy,
        checkpoint=bool(info.activation_checkpointing),
    )


def _integers(values: Mapping[str, Any] | None) -> dict[str, int]:
    """Of the values those that are counts."""
    return {name: value for name, value in (values or {}).items() if type(value) is int and 0 < value < MOST}


def peak_memory(info: RunInfo) -> dict[int, dict[str, int]]:
    """Peak memory as the run's own counters had it: rank → `peak_allocated_bytes`, `peak_reserved_bytes`, if known."""
    rows = [row for row in info.memory or () if row and type(row.get("rank")) is int]
    return {
        row["rank"]: {name: value for name, value in _integers(row).items() if name.startswith("peak_")} for row in rows
    }


# Which host and rack each rank ran on, as a file of the user says.


_RANKS = re.compile(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*")

_APART = re.compile(r"[;\s]+")
"""What stands between the words of a line without commas."""


class Placed(Struct, frozen=True):
    """A rank's host and rack; `None` where it is not known."""

    host: str | None = None
    rack: str | None = None


def read_hosts(path: Path) -> dict[int, Placed]:
    """Rank → host and rack, from CSV or JSON.

    CSV has rows `rank,host,rack`, the rack optional, with or without a line of headings; a rank may be a range, `0-7`.
    Blanks, tabs or semicolons stand for the commas of lines that have none.
    JSON is a list of hosts in order of rank, a list of objects with `rank`, `host` and `rack`, or an object from rank
    to host or to such an object.

    Raises:
        InputError: the file cannot be read, or says nothing of this kind; the message has the line or entry.
    """
    try:
        text = whole.content(path).decode("utf-8-sig")
        rows = _of_json(json.loads(text)) if text.lstrip()[:1] in ("{", "[") else _of_csv(text)
        return _placed(rows)
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError(
            f"{path}: no hosts of ranks ({error}); write rows rank,host,rack such as 0-7,b07,r2"
        ) from error


_Row = tuple[str, str | None, str | None]


def _of_csv(text: str) -> Iterator[_Row]:
    lines = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))]
    rows = [
        (number, _APART.split(row[0]) if len(row) == 1 else row)
        for number, row in enumerate(lines, 1)
        if any(row) and not row[0].startswith("#")
    ]
    names = ["rank", "host", "rack"]
    if rows and not rows[0][1][0][:1].isdigit():
        names = [cell.lower() for cell in rows.pop(0)[1]]
        if not {"rank", "host"} <= set(names):
            raise ValueError(f"headings {', '.join(names)}: rank and host are needed")
    for number, cells in rows:
        if not 2 <= len(cells) <= len(names):
            raise ValueError(f"line {number}: {', '.join(cells)}: {len(cells)} cells")
        known = dict(zip(names, cells, strict=False))
        yield known["rank"], known.get("host") or None, known.get("rack") or None


def _of_json(found: Any) -> Iterator[_Row]:
    for place, entry in found.items() if isinstance(found, Mapping) else enumerate(found):
        own = entry if isinstance(entry, Mapping) else {"host": entry}
        rank, host, rack = own.get("rank", place), own.get("host"), own.get("rack")
        if not isinstance(host, str | None) or not isinstance(rack, str | int | None):
            raise ValueError(f"entry {rank}: host and rack are texts")  # noqa: TRY004 - of the file, not of a caller
        if isinstance(entry, Mapping) and host is None and rack is None:
            raise ValueError(f"entry {rank}: neither host nor rack among {', '.join(map(str, entry)) or 'nothing'}")
        yield str(rank), host or None, None if rack is None else str(rack)


def _placed(rows: Iterable[_Row]) -> dict[int, Placed]:
    made: dict[int, Placed] = {}
    for text, host, rack in rows:
        match = _RANKS.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no rank")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r} ends before it begins")
        for rank in range(first, last + 1):
            if rank in made:
                raise ValueError(f"rank {rank} is there twice")
            made[rank] = Placed(*(printable(name) if name else None for name in (host, rack)))
    if not made:
        raise ValueError("it is empty")
    return made


# How the GPUs of a run are joined: paths of its machine's topology, transports of NCCL's log.


FARTHEST_LAST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCIe paths, the nearest first; NVLinks (`NV18`: eighteen of them) come before all."""

NETWORK = "network"
"""Path between two machines."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a topology and NCCL's log tell of the job's ranks.

    Attributes:
        paths: numbers of two GPUs of a machine → `NV18`, `PIX`, … `SYS`; all machines are taken to be alike.
        gpus: rank → its GPU's number on its machine, where the log tells it.
        hosts: rank → its machine, where the log tells it.
        transports: two ranks → transport of their connections (`P2P/CUMEM`, `NET/IB/0/GDRDMA`) → channels that use it.
    """

    paths: Mapping[tuple[int, int], str] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    hosts: Mapping[int, str] = field(default_factory=dict)
    transports: Mapping[tuple[int, int], Counter[str]] = field(default_factory=dict)

    def placed(self, ranks: pd.DataFrame) -> "Wiring":
        """The same with GPUs and machines of the ranks' table where the log does not tell them.

        Without any name of a machine ranks are on one when no two have the same GPU.
        """
        known = ranks.set_index("rank")
        devices = {int(rank): int(number) for rank, number in known["device"].dropna().items()}
        hosts = {int(rank): str(name) for rank, name in known["host"].dropna().items()}
        if not hosts and len(set(devices.values())) == len(devices) == len(known):
            hosts = dict.fromkeys(devices, "")
        return Wiring(self.paths, devices | dict(self.gpus), hosts | dict(self.hosts), self.transports)

    def path(self, ranks: Sequence[int]) -> str | None:
        """The farthest path between any two of the ranks; `None` where one of them is unknown."""
        paths = [self._path(one, other) for one, other in combinations(sorted(ranks), 2)]
        known = [path for path in paths if path is not None]
        return max(known, key=distance) if paths and len(known) == len(paths) else None

    def transport(self, ranks: Sequence[int]) -> str | None:
        """Transports between the ranks, the one of most channels first; `None` where the log has none."""
        found: Counter[str] = Counter()
        for pair in combinations(sorted(ranks), 2):
            found.update(self.transports.get(pair, {}))
        return ", ".join(name for name, _ in found.most_common()) or None

    def _path(self, one: int, other: int) -> str | None:
        hosts = self.hosts.get(one), self.hosts.get(other)
        if None in hosts:
            return None
        if hosts[0] != hosts[1]:
            return NETWORK
        first, second = self.gpus.get(one), self.gpus.get(other)
        if first is None or second is None:
            return None
        return self.paths.get((first, second)) or self.paths.get((second, first))


def distance(path: str) -> tuple[int, int]:
    """Orders paths, the nearest first: more NVLinks before fewer, those before PIX > PXB > PHB > NODE > SYS."""
    if path.startswith("NV"):
        return 0, -int(path[2:])
    return (1 + FARTHEST_LAST.index(path) if path in FARTHEST_LAST else len(FARTHEST_LAST) + 1), 0


def nvlinks(path: object) -> int | None:
    """Number of NVLinks of a path; `None` of another one."""
    return int(path[2:]) if isinstance(path, str) and path.startswith("NV") and path[2:].isdigit() else None


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


class RunFacts(Struct, frozen=True):
    """What the files beside a run's traces tell of it.

    Attributes:
        folder: the one that all its traces lie in.
        info: the run.json.
        known: what analyses take from it all, by parameter name.
        notes: why a file could not be read.
        remarks: what was taken from where.
    """

    folder: Path
    info: RunInfo | None
    known: dict[str, Any]
    notes: tuple[str, ...]
    remarks: tuple[str, ...]


def facts_of_run(
    path: Path | None, traces: Iterable[Path], step_ms: float | None = None, given: Mapping[str, Any] | None = None
) -> RunFacts:
    """What run.json and frameworks' logs tell of a run; the user's own step and thresholds come first.

    Raises:
        UsageError: the given step is no time.
    """
    folder = Path(os.path.commonpath([trace.parent.absolute() for trace in traces]))
    info, notes = read_or_note(path)
    known = {**logged_memory(folder), **thresholds(info), **(given or {})}
    step, remarks = known_step(known, folder, step_ms)
    return RunFacts(folder, info, known | step, notes, remarks)


def known_step(
    known: Mapping[str, Any], folder: Path, given_ms: float | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The step without the profiler by parameter name, with a sentence that says where it was found.

    What the user gives comes first, then run.json (in `known`), then a framework's log beside the traces in `folder`;
    nothing where none tells it.

    Raises:
        UsageError: the given one is no time.
    """
    if given_ms is not None:
        return {KEY: given_step_ns(given_ms)}, ()
    if KEY in known:
        return {KEY: known[KEY]}, ()
    logged = logged_step(folder)
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
