"""What ran, as the run.json beside the traces tells: strategy, model, batch, dtype, speed without a profiler."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from traceanalyzer.errors import InputError
from traceanalyzer.job.model_state import Model
from traceanalyzer.model.schema import printable

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
    if ranks > 0:
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
