"""What runs that are compared should share, as each of them tells it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from traceanalyzer.diff import contents, matrix_shapes, model_flops, surroundings
from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.scales import tokens_per_step, world_size
from traceanalyzer.meaning.listed import listed

if TYPE_CHECKING:
    from traceanalyzer.analyses.names import MicroStepsColumn

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"

NOTE, WARN, WORK, REFUSE = "note", "warn", "work", "refuse"
"""What a difference means: it is told; it is told in a sentence, for it can explain the result by itself; the work of a
step differs, which tokens can make good; nothing can."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that runs should share.

    Attributes:
        name: what it is.
        told: each run's, for people; `None` where it is not known.
        weight: `note`, `warn`, `work` or `refuse`.
        why: what a difference does to the figures.
        is_close: told differently, but by no more than equal runs may differ.
    """

    name: str
    told: tuple[str | None, ...]
    weight: str
    why: str
    is_close: bool = False

    @property
    def state(self) -> str:
        """`same`, `differs`, or `not known` (when a run does not tell and the others agree)."""
        distinct = set(self.told)
        if len(distinct - {None}) > 1 and not self.is_close:
            return DIFFERS
        return UNKNOWN if None in distinct else SAME


def _distinct(column: str, table: str = "ranks") -> Callable[[Capture], str | None]:
    def read(capture: Capture) -> str | None:
        frame = capture.table(table)
        if frame is None or column not in frame:
            return None
        known = sorted(frame[column].dropna().astype("str").unique())
        return ", ".join(known) or None

    return read


def _gpu(capture: Capture) -> str | None:
    named = _distinct("device_name")(capture)
    gpu = capture.info.gpu if capture.info else None
    return named or (str(gpu["name"]) if gpu and gpu.get("name") else None)


def _world_size(capture: Capture) -> str | None:
    size = world_size(capture)
    return None if size is None else str(size)


def _ranks(capture: Capture) -> str | None:
    """`all`, or of how many and which: `1 of 2 (0)`."""
    frame, size = capture.table("ranks"), world_size(capture)
    if frame is None:
        return None
    ranks = sorted({int(rank) for rank in frame["rank"]})
    if len(ranks) == size:
        return "all"
    of = f"{len(ranks)} of {size}" if size is not None else f"{len(ranks)}"
    return f"{of} ({listed(ranks)})"


def _tokens(capture: Capture) -> str | None:
    tokens = tokens_per_step(capture)
    return None if tokens is None else f"{tokens:,}"


def micro_steps(capture: Capture) -> str | None:
    """Forward and backward passes of a compared step, from the traces, else from run.json."""
    numbers = _of_micro_steps(capture, "micro_steps")
    if numbers:
        return " or ".join(map(str, numbers))
    batch = capture.info.batch if capture.info else None
    return None if batch is None or batch.grad_accum is None else f"{batch.grad_accum}"


def _exchanging(capture: Capture) -> str | None:
    """In how many of a step's micro-steps gradients are exchanged, from the traces; unknown without GPU work."""
    if capture.is_of_hosts:
        return None
    numbers = _of_micro_steps(capture, "synchronising_micro_steps")
    return " or ".join(map(str, numbers)) or None


def _of_micro_steps(capture: Capture, column: "MicroStepsColumn") -> list[int]:
    """What the compared steps of all ranks hold in a column, each number once."""
    frame = capture.table("micro_steps")
    if frame is None:
        return []
    own = frame[frame["step"].isin(capture.steps)] if capture.steps else frame
    return sorted({int(number) for number in own[column].dropna()})


def _gradient_bytes(capture: Capture) -> str | None:
    """Bytes of all-reduces and reduce-scatters in a step, by rank if they differ."""
    frame = capture.table("micro_steps")
    own = frame[frame["step"].isin(capture.steps)] if frame is not None else None
    if own is None or own.empty or own["gradient_bytes"].isna().any():
        return None
    return " or ".join(f"{size:,}" for size in sorted(own["gradient_bytes"].unique()))


def _model(capture: Capture) -> str | None:
    model = capture.info.model if capture.info else None
    return None if not model else ", ".join(f"{name} {value}" for name, value in sorted(model.items()))


def _of_info(name: str) -> Callable[[Capture], str | None]:
    def read(capture: Capture) -> str | None:
        known = getattr(capture.info, name) if capture.info else None
        return None if known is None else str(known)

    return read


def _checkpointing(capture: Capture) -> str | None:
    """By run.json, else by what the backward pass computes again; attention does so by itself, to a lesser part."""
    stated, frame = _of_info("activation_checkpointing")(capture), capture.table("mfu")
    if stated is not None or frame is None or "recompute_flops" not in frame or frame["recompute_flops"].isna().any():
        return stated
    return str(bool(frame["recompute_flops"].sum() >= _RECOMPUTED * frame["model_flops"].sum()))


def _captured(capture: Capture) -> str:
    return f"{len(capture.steps)} ({capture.basis})" if capture.steps else "whole capture"


TRACED = "ranks with a trace"

MICRO_STEPS = "micro-steps a step"

COMMUNICATION = "communication a step"

_RECOMPUTED = 0.15
"""Of the model FLOPs, recomputed: checkpoints of whole blocks make it up to a third, attention alone less than this."""

EXCHANGING = "micro-steps with an exchange of gradients"

MODEL_FLOPS = "model FLOPs a step"

DIMENSIONS = "size of matrix products"

ELEMENT_TYPE = "element type of matrix products"

OF_SHAPES = (MODEL_FLOPS, DIMENSIONS, ELEMENT_TYPE)
"""Facts that only traces with operators' shapes tell."""

IS_CLOSE: Mapping[str, Callable[[Sequence[Capture]], bool]] = MappingProxyType(
    {MODEL_FLOPS: model_flops.is_close, DIMENSIONS: matrix_shapes.is_shared}
)
"""Facts of which equal runs may be told differently."""

FACTS: tuple[tuple[str, str, str, Callable[[Capture], str | None]], ...] = (
    ("GPU", REFUSE, "times on different GPUs say nothing of the strategies.", _gpu),
    ("model", REFUSE, "different models do different work.", _model),
    ("dtype", REFUSE, "another element type is other work.", _of_info("dtype")),
    (DIMENSIONS, REFUSE, "no product of the one has a dimension of the other's: another model.", matrix_shapes.told),
    (ELEMENT_TYPE, REFUSE, "most of the work is in another type.", _distinct("element_type", "mfu")),
    (
        "dtype of parameters",
        WARN,
        "cast before use they make norms and element-wise kernels faster too: the strategy is not the only difference.",
        _of_info("param_dtype"),
    ),
    ("world size", WORK, "a step is shared by another number of ranks.", _world_size),
    ("tokens a step", WORK, "a step is another amount of work.", _tokens),
    (MICRO_STEPS, WORK, "a step is another number of forward and backward passes.", micro_steps),
    (EXCHANGING, NOTE, "gradients are exchanged in more of them, or in fewer.", _exchanging),
    (MODEL_FLOPS, WORK, "a step is another amount of work.", model_flops.told),
    (
        "bytes of all-reduce and reduce-scatter a step",
        NOTE,
        "another model, another element type in the exchange, or another strategy.",
        _gradient_bytes,
    ),
    (TRACED, NOTE, "means over ranks are of these.", _ranks),
    ("steps compared", NOTE, "figures are per step.", _captured),
    ("compiled", NOTE, "kernels of a compiled model have other names.", _of_info("compile")),
    ("activation checkpointing", NOTE, "the forward pass runs twice.", _checkpointing),
    ("kernels made by a compiler", NOTE, "kernels of a compiled model have other names.", surroundings.kernels_made),
    ("strategy", NOTE, "what is compared.", _of_info("strategy")),
    ("parallel sizes", NOTE, "ranks share the work in another way.", surroundings.parallel),
    ("schedule of the pipeline", NOTE, "stages wait for each other in another way.", surroundings.schedule),
    ("blocks by stage", NOTE, "stages compute unequally long.", surroundings.split),
    (
        "streams of copies",
        NOTE,
        "copies on the stream of compute cannot run beside it.",
        surroundings.streams_of_copies,
    ),
    *(
        (name, NOTE, "versions decide which kernels run.", surroundings.version_of(name))
        for name in surroundings.PACKAGES
    ),
    ("links", NOTE, "collectives and copies run at another speed.", surroundings.links),
    ("profiler", NOTE, "profilers slow the host by different amounts.", surroundings.profiler),
    ("profiler's options", NOTE, "what is recorded besides slows the host.", surroundings.profiler_options),
    ("host", NOTE, "links and CPUs may differ.", _distinct("host")),
)
"""In the order in which they are shown."""


def of(captures: Sequence[Capture]) -> tuple[Fact, ...]:
    """Every fact of these captures, then what only one of them does in a step."""
    close = {name: is_close(captures) for name, is_close in IS_CLOSE.items()}
    told = [
        Fact(name, tuple(map(read, captures)), weight, why, close.get(name, False)) for name, weight, why, read in FACTS
    ]
    exchange = Fact(COMMUNICATION, surroundings.communication(captures), NOTE, "the exchange is cut in another way.")
    done = [Fact(name, done, NOTE, "only one run does it, or more of it.") for name, done in contents.of(captures)]
    return (*told, exchange, *done)
