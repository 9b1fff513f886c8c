"""What runs should share, one fact at a time, and what only one of them does in a step."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.analyses.statistics import LEAST_PCT, SHARE
from traceanalyzer.diff.captures import Capture, profiler, tokens_per_step, world_size
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, digits, per_cent, text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import MOST_PIECES, listed, named

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


# Whether runs can be of one model, as far as the shapes of their matrix products can tell.


_MATRIX = re.compile(r"\[(\d+), (\d+)\]")


def dimensions(capture: Capture) -> list[int]:
    """Lengths and widths of all arguments of matrix products, in order; none without shapes.

    Products of batches of matrices (attention) are left out: heads and their width are alike in most models.
    """
    table = capture.table("matrix_products")
    products = () if table is None else table["product"].dropna().unique()
    return sorted({int(size) for text in products for pair in _MATRIX.findall(str(text)) for size in pair})


def dimensions_text(capture: Capture) -> str | None:
    """The same for people, of many the largest; `None` where they are not known."""
    sizes = dimensions(capture)
    return ", ".join([*["…"] * (len(sizes) > MOST_PIECES), *map(str, sizes[-MOST_PIECES:])]) or None


def is_shared(captures: Sequence[Capture]) -> bool:
    """Whether every run that tells has a dimension of the first one that does.

    Runs of one model have its width at least, however they cut batch, matrices or layers; those of other models may
    share a dimension by chance.
    """
    first, *others = [set(own) for capture in captures if (own := dimensions(capture))] or [set[int]()]
    return all(first & other for other in others)


# Whether runs did the same work, as far as the model FLOPs that their traces hold can tell.


def model_flops(capture: Capture) -> float | None:
    """Model FLOPs of one step of all ranks, mean over the compared steps.

    `None` unless every rank of the job tells them for each of these steps in full (`covered_pct` 100): what is only a
    lower bound cannot be compared.
    """
    frame, size = capture.table("mfu"), world_size(capture)
    if frame is None or size is None or not capture.steps:
        return None
    own = capture.of_steps(frame)
    is_whole = len(own) == size * len(capture.steps) and bool((own["covered_pct"] >= 100).fillna(value=False).all())
    return float(own["model_flops"].sum()) / len(capture.steps) if is_whole else None


def model_flops_text(capture: Capture) -> str | None:
    """The same for people, and of one rank that does more than `RUN_TO_RUN` more than each other one its part."""
    flops = model_flops(capture)
    if flops is None:
        return None
    own = capture.of_steps(capture.tables["mfu"]).groupby("rank")["model_flops"].sum() / len(capture.steps)
    most = own.nlargest(2).astype("float64")
    is_uneven = len(most) > 1 and most.iloc[1] < most.iloc[0] * (1 - RUN_TO_RUN)
    whose = f", {most.iloc[0] / 1e12:,.4g} of them on rank {most.index[0]}" if is_uneven else ""
    return f"{flops / 1e12:,.4g} TFLOP{whose}"


def is_close(captures: Sequence[Capture]) -> bool:
    """Whether all captures tell, and the largest exceeds the least by no more than `RUN_TO_RUN` of itself."""
    flops = [model_flops(capture) for capture in captures]
    known = [value for value in flops if value is not None]
    return len(known) == len(flops) and max(known) - min(known) <= max(known) * RUN_TO_RUN


# What only one run does in a step, or much more of: copies, blocking CPU calls, matrix products.


COPIES = "copies a step"

WAITS = "blocking CPU calls per step"

PRODUCTS = "matrix products a step"

SHARES = "ranks' shares of the model FLOPs"

_WAYS: dict[str, tuple[str, str]] = {
    "HtoD": ("source_memory", "from {} memory to the GPU"),
    "DtoH": ("target_memory", "from the GPU to {} memory"),
}
"""Directions of copies: the column that names the host's memory, and words. Copies between GPUs are communication."""

_WAITING = re.compile(r"^(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)?Synchronize\b")

Amounts = Mapping[str, pd.Series]
"""By what is done how much of it each rank does in a step, the dearest first."""


def _unequal_work(captures: Sequence[Capture]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each of these kinds in which runs differ its name and what each run does of what they do not do alike.

    Nothing of a kind that a capture does not tell, and nothing of CPUs where profilers differ: they name calls in
    other ways.
    """
    readers = [(COPIES, _copies, Unit.BYTES)]
    if len({profiler(capture) for capture in captures}) == 1:
        readers.append((WAITS, _waits, Unit.COUNT))
    for name, read, unit in readers:
        amounts = [read(capture) for capture in captures]
        known = [own for own in amounts if own is not None]
        if len(known) == len(captures) and (differing := _unequal(known)):
            yield name, tuple(_listed(own, differing, unit) for own in known)
    if products := more_products(captures):
        yield PRODUCTS, products
        return
    shares = [own for capture in captures if (own := _flop_shares(capture)) is not None]
    if len(shares) == len(captures) and len({len(own) for own in shares}) == 1:
        by_rank = [*zip(*shares, strict=True)]
        if any(max(pct) - min(pct) > 100 * RUN_TO_RUN for pct in by_rank):
            yield SHARES, tuple(", ".join(f"{per_cent(round(pct))}%" for pct in own) for own in shares)


def more_products(captures: Sequence[Capture]) -> tuple[str, ...] | None:
    """What each run does of the few matrix products of which one does more or less than another.

    `None` where it is not most of the products of which all do the same: another model, or another batch.
    """
    amounts = [_products(capture) for capture in captures]
    known = [own for own in amounts if own]
    if len(known) < len(captures):
        return None
    differing, every = _unequal(known), set.union(*map(set, known))
    if not 0 < len(differing) < SHARE * len(every):
        return None
    return tuple(_listed(own, differing, Unit.COUNT) for own in known)


def _listed(own: Amounts, names: Sequence[str], unit: Unit) -> str:
    return named([_summary(own[name], unit, name) for name in names if name in own and own[name].any()])


def _summary(amount: pd.Series, unit: Unit, name: str) -> str:
    """`12 waits`, `40 products on rank 1`, `6 products on rank 0 and 16 on rank 1`, or a range."""
    done = amount[amount > 0]
    if len(done) == len(amount) and done.max() - done.min() <= RUN_TO_RUN * done.max():
        return f"{text(done.mean(), unit)} {name}"
    if len(done) == 1:
        return f"{text(done.iloc[0], unit)} {name} on rank {done.index[0]}"
    return f"{text(amount.min(), unit)} to {text(amount.max(), unit)} {name} on a rank"


def _unequal(amounts: Sequence[Amounts]) -> list[str]:
    """Of what the rank that does least, or most, does another amount in one run than in another."""
    names, nothing = dict.fromkeys(name for own in amounts for name in own), pd.Series([0.0])
    of_runs = {name: [own.get(name, nothing) for own in amounts] for name in names}
    ends = {name: [[own.min() for own in runs], [own.max() for own in runs]] for name, runs in of_runs.items()}
    return [
        name for name, own in ends.items() if any(100 * (max(end) - min(end)) > LEAST_PCT * max(end) for end in own)
    ]


def _copies(capture: Capture) -> Amounts | None:
    """Bytes of uploads and downloads by memory, of those whose time is worth a word."""
    frame, windows = capture.table("copies"), capture.table("breakdown")
    if frame is None or windows is None or not capture.is_exact:
        return None
    least_ns, made = LEAST_PCT / 100 * windows["window_ns"].mean(), {}
    for direction, (column, words) in _WAYS.items():
        own = frame[frame["direction"] == direction]
        for memory, rows in own.groupby(own[column].astype("object").where(own[column].notna(), "unknown")):
            if (cost_ns := rows.groupby("rank")["total_ns"].sum().max()) >= least_ns > 0:
                made[words.format(memory)] = (cost_ns, _by_rank(capture, rows, "size_bytes"))
    return {name: made[name][1] for name in sorted(made, key=lambda name: -made[name][0])}


def _waits(capture: Capture) -> Amounts | None:
    """Synchronising calls; any difference of their number counts."""
    frame = capture.table("cuda_api")
    if frame is None or not capture.is_exact or not capture.steps:
        return None
    own = frame[frame["name"].astype("str").str.contains(_WAITING)]
    return {str(name): _by_rank(capture, rows, "calls") for name, rows in own.groupby("name", observed=True)}


def _products(capture: Capture) -> Amounts | None:
    frame = capture.table("matrix_products")
    if frame is None or not capture.is_exact:
        return None
    names = frame["product"].astype("str") + " " + frame["dtype"].astype("str").map(element_types)
    return {str(name): _by_rank(capture, rows, "calls") for name, rows in frame.groupby(names)}


def _by_rank(capture: Capture, rows: pd.DataFrame, column: str) -> pd.Series:
    """Each rank's sum a step; a rank without a row does none."""
    sums = rows.groupby("rank")[column].sum().astype("float64") / capture.per
    return sums.reindex(capture.tables["breakdown"]["rank"].to_numpy(), fill_value=0.0)


def _flop_shares(capture: Capture) -> list[float] | None:
    """Percent of the compared steps' model FLOPs on each rank."""
    frame = capture.table("mfu")
    own = frame[frame["step"].isin(capture.steps)] if frame is not None else None
    if own is None or own.empty or own["model_flops"].isna().any() or own["covered_pct"].isna().all():
        return None  # what run.json says of the whole job tells no rank's share
    sums = own.groupby("rank")["model_flops"].sum().astype("float64")
    return (100 * sums / sums.sum()).tolist() if sums.sum() else None


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
    done = {"communication a step": _communication(captures), **dict(_unequal_work(captures))}
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
