"""What runs should share: what each ran, on what, and with what it was recorded, one fact at a time."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.diff import contents
from traceanalyzer.diff.captures import (
    Capture,
    dimensions_text,
    is_close,
    is_shared,
    model_flops_text,
    profiler,
    tokens_per_step,
    world_size,
)  # fmt: skip
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import digits
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import listed

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"

NOTE, WARN, WORK, REFUSE = "note", "warn", "work", "refuse"
"""What a difference means: it is listed; it has a sentence, for it can explain the result by itself; the work of a
step differs, which tokens can make good; nothing can."""

SURROUNDINGS, RECORDING, RANKS, SETTING = "surroundings", "recording", "ranks", "setting"
"""What a run stands in, what it was recorded with and of whom, and what was chosen for it. `WORK` is what a step
computes; a fact of no kind is not in the first line."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that runs should share.

    Attributes:
        name: what it is.
        by_run: its value for each run, for people; `None` where it is not known.
        weight: `note`, `warn`, `work` or `refuse`.
        kind: what it is a fact of.
        why: what a difference does to the figures.
        is_close: different, but by no more than equal runs may differ.
    """

    name: str
    by_run: tuple[str | None, ...]
    weight: str
    kind: str
    why: str
    is_close: bool = False

    @property
    def state(self) -> str:
        """`same`, `differs`, or `not known` (when a run does not tell and the others agree)."""
        distinct = set(self.by_run)
        if len(distinct - {None}) > 1 and not self.is_close:
            return DIFFERS
        return UNKNOWN if None in distinct else SAME

    @property
    def values(self) -> list[str]:
        """Of each run, for people."""
        return [text or "not known" for text in self.by_run]

    @property
    def in_each(self) -> str:
        """`570 | 580`."""
        return " | ".join(self.values)


Read = Callable[[Capture], str | None]


def _column(column: str, table: str = "ranks") -> Read:
    """The values of a column, each once."""

    def read(capture: Capture) -> str | None:
        frame = capture.table(table)
        return None if frame is None or column not in frame else ", ".join(_once(frame[column])) or None

    return read


def _once(values: pd.Series) -> list[str]:
    return sorted(values.dropna().astype("str").unique())


def _info(name: str) -> Read:
    """What run.json has of that name."""
    return lambda capture: None if (known := getattr(capture.known, name)) is None else str(known)


def _number(read: Callable[[Capture], int | None]) -> Read:
    return lambda capture: None if (known := read(capture)) is None else f"{known:,}"


def _gpu(capture: Capture) -> str | None:
    stated = (capture.known.gpu or {}).get("name")
    return _column("device_name")(capture) or (str(stated) if stated else None)


def _ranks(capture: Capture) -> str | None:
    """`all`, or of how many and which: `1 of 2 (0)`."""
    frame, size = capture.table("ranks"), world_size(capture)
    if frame is None:
        return None
    ranks = {int(rank) for rank in frame["rank"]}
    if len(ranks) == size:
        return "all"
    return f"{len(ranks)}{'' if size is None else f' of {size}'} ({listed(ranks)})"


def micro_steps(capture: Capture) -> str | None:
    """Forward and backward passes of a compared step, from the traces, else from run.json."""
    batch = capture.known.batch
    stated = None if batch is None or batch.grad_accum is None else str(batch.grad_accum)
    return _of_micro_steps("micro_steps")(capture) or stated


def _exchanging(capture: Capture) -> str | None:
    """In how many of a step's micro-steps gradients are exchanged, from the traces; unknown without GPU work."""
    return None if capture.is_of_hosts else _of_micro_steps("synchronising_micro_steps")(capture)


def _of_micro_steps(column: str) -> Read:
    """What the compared steps of all ranks hold in a column, each number once."""

    def read(capture: Capture) -> str | None:
        frame = capture.table("micro_steps")
        if frame is None:
            return None
        own = frame[frame["step"].isin(capture.steps)] if capture.steps else frame
        return " or ".join(f"{number:,}" for number in sorted({int(number) for number in own[column].dropna()})) or None

    return read


def _model(capture: Capture) -> str | None:
    return ", ".join(f"{name} {value}" for name, value in sorted((capture.known.model or {}).items())) or None


def _checkpointing(capture: Capture) -> str | None:
    """By run.json, else by whether most of the forward pass, a third of the model FLOPs, is computed again.

    Attention is by itself, which is a lesser part.
    """
    stated, frame = _info("activation_checkpointing")(capture), capture.table("mfu")
    if stated is not None or frame is None or "recompute_flops" not in frame or frame["recompute_flops"].isna().any():
        return stated
    return str(bool(frame["recompute_flops"].sum() >= SHARE * frame["model_flops"].sum() / 3))


# What a run ran on and was recorded with.


_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "PyTorch": ("torch", "pytorch"),
        "CUDA": ("cuda", "cuda_runtime"),
        "NCCL": ("nccl",),
        "driver": ("driver",),
        "CUDA driver": ("cuda_driver",),
        "Python": ("python",),
        "Nsight Systems": ("nsys",),
    }
)
"""Names under which run.json and traces give versions."""

_OPTIONS = ("record_shapes", "with_stack", "profile_memory", "nvtx_ops", "stream_waits")
"""What a profiler was asked to record besides: each slows the host."""

_PARALLEL = {"dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline", "cp": "context parallel",
             "ep": "expert parallel"}  # fmt: skip

_LINK = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")


def _version(package: str) -> Read:
    """Version of a package, by run.json, else by the traces where all ranks' name the same."""

    def read(capture: Capture) -> str | None:
        frame = capture.table("ranks")
        texts = _once(frame["versions"]) if frame is not None and "versions" in frame else []
        pairs = [part.rpartition(" ") for part in texts[0].split(", ")] if len(texts) == 1 else []
        known = {name: version for name, _, version in pairs if name}
        known |= {name: value for name, value in (capture.known.versions or {}).items() if value}
        return next((known[name] for name in _ALIASES[package] if name in known), None)

    return read


def _links(capture: Capture) -> str | None:
    """Kinds of links between the host's GPUs, most frequent first: `NV18`, `NV4, SYS`; by run.json's topology."""
    lines = [line.split() for line in (capture.known.topology or "").splitlines() if re.match(r"\s*GPU\d+\s", line)]
    cells = [cell for line in lines for cell in line[1:] if _LINK.fullmatch(cell)]
    return ", ".join(sorted(set(cells), key=lambda kind: (-cells.count(kind), kind))) or None


def _links_used(capture: Capture) -> str | None:
    """How NCCL's ranks reach each other, by run.json: `peer to peer`, `host memory`, `network`."""
    ways = {"P2P": "peer to peer", "SHM": "host memory", "NET": "network"}
    kinds = {name.partition("/")[0] for name in capture.known.transports or ()}
    return " and ".join(ways.get(kind, kind) for kind in sorted(kinds)) or None


def _variables(capture: Capture) -> str | None:
    """What was set for NCCL, CUDA and the allocator, by run.json; `none` for nothing."""
    stated = capture.known.environment
    return None if stated is None else ", ".join(f"{name}={value}" for name, value in stated.items()) or "none"


def _profiler_options(capture: Capture) -> str | None:
    """What the profiler recorded besides, by run.json: `record_shapes, stream_waits`; `none` for nothing."""
    stated = capture.known.profile
    return ", ".join(name for name in _OPTIONS if stated.get(name)) or "none" if stated else None


def _parallel(capture: Capture) -> str | None:
    """`data parallel 2 × pipeline 2`, by run.json, else as the traces' process groups span it."""
    if stated := parallel_sizes(capture):
        return (
            " × ".join(f"{name} {stated[key]}" for key, name in _PARALLEL.items() if stated.get(key, 1) > 1) or "none"
        )
    frame = capture.table("groups")
    return None if frame is None or "role" not in frame else mesh(frame, world_size(capture))


def parallel_sizes(capture: Capture) -> dict[str, int]:
    """Sizes by axis (`dp`, `tp`, `pp`) as run.json has them; empty where it does not."""
    stated = capture.known.parallel or {}
    return {key: value for key in _PARALLEL if isinstance(value := stated.get(key), int)}


def _schedule(capture: Capture) -> str | None:
    """`1F1B, 4 microbatches`: of the pipelines, as the traces show it; microbatches else by run.json."""
    frame = capture.table("pipelines")
    if frame is None:
        return None
    stated = (capture.known.parallel or {}).get("microbatches")
    numbers = sorted({int(number) for number in frame["microbatches"].dropna()})
    count = " or ".join(map(str, numbers or ([stated] if isinstance(stated, int) else [])))
    parts = [*_once(frame["schedule"]), *([f"{count} microbatches"] if count not in ("", "1") else [])]
    return ", ".join(parts) or None


def _split(capture: Capture) -> str | None:
    """Blocks by stage of a pipeline, by run.json: `6,2,2,2`."""
    stated = (capture.known.parallel or {}).get("split")
    return ",".join(map(str, stated)) if isinstance(stated, list) else None


def _streams_of_copies(capture: Capture) -> str | None:
    """Whether copies between host and GPU run on the streams of compute, on streams of their own, or on both."""
    frame, window = capture.table("streams"), capture.table("breakdown")
    if frame is None or "upload_ns" not in frame or window is None:
        return None
    copied = frame["upload_ns"].fillna(0) + frame["download_ns"].fillna(0)
    if not copied.sum() or copied.sum() < RUN_TO_RUN * float(window["window_ns"].sum()):
        return None
    shared = copied[frame["compute_ns"].fillna(0) > 0].sum() / copied.sum()
    if shared < RUN_TO_RUN:
        return "of their own"
    return "that of compute" if shared > 1 - RUN_TO_RUN else "that of compute and others"


def _communication(captures: Sequence[Capture]) -> tuple[str | None, ...]:
    """`26 all-gather bf16, 13 reduce-scatter fp32`: calls of a rank in a step, mean over ranks; `none` for none.

    Without element types where a capture does not tell them.
    """
    frames = [capture.table("nccl") for capture in captures]
    has_types = all(frame is None or frame["dtype"].notna().all() for frame in frames)

    def read(capture: Capture) -> str | None:
        frame, ranks = capture.table("nccl"), capture.table("breakdown")
        if ranks is None or not capture.is_exact or "nccl" not in capture.tables:
            return None
        if frame is None:
            return "none"
        names = frame["collective"].map(collective_words, na_action="ignore").astype("str")
        if has_types:
            names += " " + frame["dtype"].astype("str").map(element_types)
        calls = frame["calls"].groupby(names).sum() / (len(ranks["rank"].unique()) * capture.per)
        ordered = sorted(calls.items(), key=lambda pair: (-pair[1], str(pair[0])))
        return ", ".join(f"{digits(float(count))} {name}" for name, count in ordered)

    return tuple(map(read, captures))


def _kernels_made(capture: Capture) -> str | None:
    """Whether a compiler made some of the kernels (Triton's names)."""
    frame = capture.table("kernels")
    if frame is None or "name" not in frame:
        return None
    return "some" if frame["name"].astype("str").str.startswith("triton_").any() else "none"


# All facts, in the order in which they are shown.


MICRO_STEPS = "micro-steps a step"

MODEL_FLOPS = "model FLOPs a step"

DIMENSIONS = "size of matrix products"

ELEMENT_TYPE = "element type of matrix products"

OF_SHAPES = (MODEL_FLOPS, DIMENSIONS, ELEMENT_TYPE)
"""Facts that only traces with operators' shapes tell."""

_IS_CLOSE: Mapping[str, Callable[[Sequence[Capture]], bool]] = {MODEL_FLOPS: is_close, DIMENSIONS: is_shared}
"""Facts that may differ between equal runs."""

FACTS: tuple[tuple[str, str, str, str, Read], ...] = (
    ("GPU", REFUSE, SURROUNDINGS, "times on different GPUs do not compare strategies.", _gpu),
    ("model", REFUSE, WORK, "different models do different work.", _model),
    ("dtype", REFUSE, WORK, "another element type is other work.", _info("dtype")),
    (
        DIMENSIONS,
        REFUSE,
        WORK,
        "no product of the one has a dimension of the other's: another model.",
        dimensions_text,
    ),
    (ELEMENT_TYPE, REFUSE, WORK, "most of the work is in another type.", _column("element_type", "mfu")),
    (
        "dtype of parameters",
        WARN,
        SETTING,
        "cast before use they make norms and element-wise kernels faster too: the strategy is not the only difference.",
        _info("param_dtype"),
    ),
    ("world size", WORK, WORK, "a step is shared by another number of ranks.", _number(world_size)),
    ("tokens a step", WORK, WORK, "a step is another amount of work.", _number(tokens_per_step)),
    (MICRO_STEPS, WORK, SETTING, "a step is another number of forward and backward passes.", micro_steps),
    (
        "micro-steps with an exchange of gradients",
        NOTE,
        SETTING,
        "gradients are exchanged in more of them, or in fewer.",
        _exchanging,
    ),
    (MODEL_FLOPS, WORK, WORK, "a step is another amount of work.", model_flops_text),
    ("ranks with a trace", NOTE, RANKS, "means over ranks are of these.", _ranks),
    (
        "steps compared",
        NOTE,
        "",
        "figures are per step.",
        lambda capture: f"{len(capture.steps)} ({capture.basis})" if capture.steps else capture.basis,
    ),
    ("compiled", NOTE, SETTING, "kernels of a compiled model have other names.", _info("compile")),
    ("activation checkpointing", NOTE, SETTING, "the forward pass runs twice.", _checkpointing),
    ("kernels made by a compiler", NOTE, SETTING, "kernels of a compiled model have other names.", _kernels_made),
    ("strategy", NOTE, SETTING, "what is compared.", _info("strategy")),
    ("parallel sizes", NOTE, SETTING, "ranks share the work in another way.", _parallel),
    ("schedule of the pipeline", NOTE, SETTING, "stages wait for each other in another way.", _schedule),
    ("blocks by stage", NOTE, SETTING, "stages compute unequally long.", _split),
    ("streams of copies", NOTE, SETTING, "copies on the stream of compute cannot run beside it.", _streams_of_copies),
    *(
        (
            name,
            NOTE,
            RECORDING if name == "Nsight Systems" else SURROUNDINGS,
            "versions decide which kernels run.",
            _version(name),
        )
        for name in _ALIASES
    ),
    ("links", NOTE, SURROUNDINGS, "collectives and copies run at another speed.", _links),
    ("links used", NOTE, SURROUNDINGS, "collectives run at another speed.", _links_used),
    ("environment variables", NOTE, SURROUNDINGS, "they choose links, algorithms and streams.", _variables),
    ("profiler", NOTE, RECORDING, "profilers add different CPU overhead.", profiler),
    ("profiler's options", NOTE, RECORDING, "extra recording adds CPU overhead.", _profiler_options),
    ("host", NOTE, SURROUNDINGS, "links and CPUs may differ.", _column("host")),
)


def of(captures: Sequence[Capture]) -> tuple[Fact, ...]:
    """Every fact of these captures, then what only one of them does in a step."""
    close = {name: are_close(captures) for name, are_close in _IS_CLOSE.items()}
    facts = [
        Fact(name, tuple(map(read, captures)), weight, kind, why, close.get(name, False))
        for name, weight, kind, why, read in FACTS
    ]
    done = {"communication a step": _communication(captures), **dict(contents.of(captures))}
    whys = {"communication a step": "the exchange is cut in another way."}
    for name, values in done.items():
        facts.append(Fact(name, values, NOTE, SETTING, whys.get(name, "only one run does it, or more of it.")))
    return tuple(facts)


def as_frame(facts: Sequence[Fact], runs: Sequence[str]) -> pd.DataFrame:
    """The facts as a table: a row each, a column for each run."""
    rows: list[dict[str, Any]] = [
        {"fact": fact.name, "state": fact.state, **dict(zip(runs, fact.by_run, strict=True)), "why": fact.why}
        for fact in facts
    ]
    return pd.DataFrame(rows)
