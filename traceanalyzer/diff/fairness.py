"""Whether runs did the same work, and what differs between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.analyses.integrity import integrity
from traceanalyzer.diff import captures as diff_captures
from traceanalyzer.diff import contents, surroundings
from traceanalyzer.diff.captures import CAPTURE, STEP, TOKEN, Capture, Scale, Side, tokens_per_step, world_size
from traceanalyzer.diff.surroundings import parallel_sizes
from traceanalyzer.meaning.vocabulary import listed, numbered

SAME, DIFFERS, UNKNOWN = "same", "differs", "not known"

NOTE, WARN, WORK, REFUSE = "note", "warn", "work", "refuse"
"""What a difference means: it is listed; it has a sentence, for it can explain the result by itself; the work of a
step differs, which tokens can make good; nothing can."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that runs should share.

    Attributes:
        name: what it is.
        by_run: its value for each run, for people; `None` where it is not known.
        weight: `note`, `warn`, `work` or `refuse`.
        why: what a difference does to the figures.
        is_close: different, but by no more than equal runs may differ.
    """

    name: str
    by_run: tuple[str | None, ...]
    weight: str
    why: str
    is_close: bool = False

    @property
    def state(self) -> str:
        """`same`, `differs`, or `not known` (when a run does not tell and the others agree)."""
        distinct = set(self.by_run)
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
    gpu = capture.known.gpu
    return named or (str(gpu["name"]) if gpu and gpu.get("name") else None)


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


def micro_steps(capture: Capture) -> str | None:
    """Forward and backward passes of a compared step, from the traces, else from run.json."""
    numbers = _of_micro_steps(capture, "micro_steps")
    if numbers:
        return " or ".join(map(str, numbers))
    batch = capture.known.batch
    return None if batch is None or batch.grad_accum is None else f"{batch.grad_accum}"


def _exchanging(capture: Capture) -> str | None:
    """In how many of a step's micro-steps gradients are exchanged, from the traces; unknown without GPU work."""
    if capture.is_of_hosts:
        return None
    numbers = _of_micro_steps(capture, "synchronising_micro_steps")
    return " or ".join(map(str, numbers)) or None


def _of_micro_steps(capture: Capture, column: str) -> list[int]:
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
    model = capture.known.model
    return None if not model else ", ".join(f"{name} {value}" for name, value in sorted(model.items()))


def _text(value: Any) -> str | None:
    return None if value is None else f"{value:,}" if type(value) is int else str(value)


def _of_info(name: str) -> Callable[[Capture], str | None]:
    return lambda capture: None if (known := getattr(capture.known, name)) is None else str(known)


def _checkpointing(capture: Capture) -> str | None:
    """By run.json, else by what the backward pass computes again; attention does so by itself, to a lesser part."""
    stated, frame = _of_info("activation_checkpointing")(capture), capture.table("mfu")
    if stated is not None or frame is None or "recompute_flops" not in frame or frame["recompute_flops"].isna().any():
        return stated
    return str(bool(frame["recompute_flops"].sum() >= _RECOMPUTED * frame["model_flops"].sum()))


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

IS_CLOSE: Mapping[str, Callable[[Sequence[Capture]], bool]] = {
    MODEL_FLOPS: diff_captures.is_close,
    DIMENSIONS: diff_captures.is_shared,
}
"""Facts that may differ between equal runs."""

FACTS: tuple[tuple[str, str, str, Callable[[Capture], str | None]], ...] = (
    ("GPU", REFUSE, "times on different GPUs do not compare strategies.", _gpu),
    ("model", REFUSE, "different models do different work.", _model),
    ("dtype", REFUSE, "another element type is other work.", _of_info("dtype")),
    (
        DIMENSIONS,
        REFUSE,
        "no product of the one has a dimension of the other's: another model.",
        diff_captures.matrix_shapes_text,
    ),
    (ELEMENT_TYPE, REFUSE, "most of the work is in another type.", _distinct("element_type", "mfu")),
    (
        "dtype of parameters",
        WARN,
        "cast before use they make norms and element-wise kernels faster too: the strategy is not the only difference.",
        _of_info("param_dtype"),
    ),
    ("world size", WORK, "a step is shared by another number of ranks.", lambda capture: _text(world_size(capture))),
    ("tokens a step", WORK, "a step is another amount of work.", lambda capture: _text(tokens_per_step(capture))),
    (MICRO_STEPS, WORK, "a step is another number of forward and backward passes.", micro_steps),
    (EXCHANGING, NOTE, "gradients are exchanged in more of them, or in fewer.", _exchanging),
    (MODEL_FLOPS, WORK, "a step is another amount of work.", diff_captures.model_flops_text),
    (
        "bytes of all-reduce and reduce-scatter a step",
        NOTE,
        "another model, another element type in the exchange, or another strategy.",
        _gradient_bytes,
    ),
    (TRACED, NOTE, "means over ranks are of these.", _ranks),
    (
        "steps compared",
        NOTE,
        "figures are per step.",
        lambda capture: f"{len(capture.steps)} ({capture.basis})" if capture.steps else capture.basis,
    ),
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
    ("links used", NOTE, "collectives run at another speed.", surroundings.links_used),
    ("environment variables", NOTE, "they choose links, algorithms and streams.", surroundings.variables),
    ("profiler", NOTE, "profilers add different CPU overhead.", surroundings.profiler),
    ("profiler's options", NOTE, "extra recording adds CPU overhead.", surroundings.profiler_options),
    ("host", NOTE, "links and CPUs may differ.", _distinct("host")),
)
"""In the order in which they are shown."""


def of(captures: Sequence[Capture]) -> tuple[Fact, ...]:
    """Every fact of these captures, then what only one of them does in a step."""
    close = {name: is_close(captures) for name, is_close in IS_CLOSE.items()}
    facts = [
        Fact(name, tuple(map(read, captures)), weight, why, close.get(name, False)) for name, weight, why, read in FACTS
    ]
    exchange = Fact(COMMUNICATION, surroundings.communication(captures), NOTE, "the exchange is cut in another way.")
    done = [Fact(name, done, NOTE, "only one run does it, or more of it.") for name, done in contents.of(captures)]
    return (*facts, exchange, *done)


# The line that stands first in every comparison: in what the runs differ besides their times, and what follows.


SURROUNDINGS, RECORDING, RANKS, SETTING = "surroundings", "recording", "ranks", "setting"
"""What a run stands in, what it was recorded with and of whom, what was chosen for it, and what a step computes."""

_KIND_OF = {
    SURROUNDINGS: ("GPU", "links", "links used", "environment variables", "host", *surroundings.PACKAGES),
    RECORDING: ("profiler", "profiler's options", "Nsight Systems"),
    RANKS: (TRACED,),
    SETTING: ("strategy", "parallel sizes", "dtype of parameters", "compiled", "kernels made by a compiler",
              "activation checkpointing", "schedule of the pipeline", "blocks by stage", "streams of copies",
              MICRO_STEPS, EXCHANGING, COMMUNICATION, *contents.NAMES),
    WORK: ("model", "dtype", "world size", "tokens a step", MODEL_FLOPS, DIMENSIONS, ELEMENT_TYPE),
}  # fmt: skip

KINDS: Mapping[str, str] = {name: kind for kind, names in _KIND_OF.items() for name in names}
"""Facts that the line names; others are listed further down."""

NOTHING = "A time difference comes from the code, or is noise."
"""What follows where nothing differs."""

ASKED_FOR = ("PyTorch", "NCCL", "driver", "links", "parallel sizes", "tokens a step")
"""Facts whose being unknown the line says."""


_FEW_RUNS = 3
"""Of so many each is listed in its place; of more, how many kinds there are."""


def line(
    facts: Sequence[Fact], runs: Sequence[str], *, is_fair: bool, has_own_times: bool, is_damaged: bool = False
) -> str:
    """`Different: driver 570 | 580; links NV18 | SYS.` and what may then be concluded.

    Args:
        facts: of the runs.
        runs: their names.
        is_fair: whether their times may be compared.
        has_own_times: whether every run tells its step time without a profiler.
        is_damaged: whether times of some run cannot be true, or are of its hosts alone.
    """
    known = [fact for fact in facts if fact.name in KINDS]
    differing = [fact for fact in known if fact.state == DIFFERS]
    listed = "; ".join(_listed(fact, runs) for fact in differing)
    unknown = [fact.name for fact in known if fact.state == UNKNOWN and fact.name in ASKED_FOR]
    asked = f" Not known of every run: {', '.join(unknown)}." if unknown else ""
    kinds = {KINDS[fact.name] for fact in differing}
    follows = _conclusion(kinds, len(differing), is_fair=is_fair, has_own_times=has_own_times)
    if is_damaged:
        follows = "Their times are not comparable."
    if unknown and follows == NOTHING:
        follows = f"Where those are the same, {NOTHING[0].lower()}{NOTHING[1:]}"
    return f"{f'Different: {listed}' if listed else 'No known difference'}.{asked} {follows}"


def _listed(fact: Fact, runs: Sequence[str]) -> str:
    """`driver 570 | 580`; of many runs how many kinds there are."""
    values = [text or "not known" for text in fact.by_run]
    return f"{fact.name} {' | '.join(values)}" if len(runs) <= _FEW_RUNS else f"{fact.name} ({len(set(values))} kinds)"


def _conclusion(kinds: set[str], count: int, *, is_fair: bool, has_own_times: bool) -> str:
    if not is_fair:
        return "They did not do the same work: their times are not comparable."
    sentences = []
    if RECORDING in kinds:
        own = "the step times without a profiler are" if has_own_times else "kernels' durations are"
        sentences.append(f"Profilers add different CPU overhead: step times, idle and waits are not comparable, {own}.")
    if SURROUNDINGS in kinds:
        sentences.append(
            "The effects of the environment and of the settings cannot be separated."
            if SETTING in kinds or WORK in kinds
            else "A time difference may come from the environment, not the code."
        )
    if not sentences and SETTING in kinds:
        sentences.append(f"A time difference may come from {'it' if count == 1 else 'any of them'}.")
    if RANKS in kinds:
        sentences.append("Means over ranks, and waits for ranks without a trace, are not comparable.")
    if not sentences and WORK in kinds:
        sentences.append("Figures are of unequal steps, made comparable as said below.")
    return " ".join(sentences) or NOTHING


# Whether runs did the same work: what differs between them, what is normalised, and what forbids a comparison.


__all__ = ["DIFFERS", "REFUSE", "SAME", "UNKNOWN", "WORK", "Fact", "Fairness", "as_frame", "judge"]

_WORK_IS_KNOWN_BY = ("model", "dtype", "tokens a step")


@dataclass(frozen=True, slots=True)
class Fairness:
    """What is known of the runs, by what their figures are divided, and why they should not be compared, if so.

    `is_damaged` where that is so for what a run's files tell, or lack, whatever its work.
    """

    facts: tuple[Fact, ...]
    scale: Scale
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    is_damaged: bool = False

    @property
    def is_fair(self) -> bool:
        """Whether the comparison is sound."""
        return not self.refusals

    @property
    def doubt(self) -> str | None:
        """Why the runs are not known to have done the same work; `None` when they are, or it is known in what not."""
        unknown = [fact.name for fact in self.facts if fact.name in _WORK_IS_KNOWN_BY and fact.state == UNKNOWN]
        if not unknown or self.refusals or self._is_same_by_traces:
            return None
        if any(fact.name == contents.PRODUCTS for fact in self.facts):
            return None
        flops = next(fact for fact in self.facts if fact.name == MODEL_FLOPS)
        both = " | ".join(text or "not known" for text in flops.by_run)
        flops_words = {
            UNKNOWN: "and the traces do not give all model FLOPs",
            SAME: f"though model FLOPs a step agree: {both}",
            DIFFERS: f"and model FLOPs a step differ: {both}",
        }[flops.state]
        return f"{', '.join(unknown)} not known for every run, {flops_words}"

    @property
    def _is_same_by_traces(self) -> bool:
        """Whether every trace tells the same FLOPs, the same sizes of matrices and the same element type."""
        of_shapes = [fact.by_run for fact in self.facts if fact.name in OF_SHAPES]
        return all(None not in values and len(set(values)) == 1 for values in of_shapes)


def judge(sides: Sequence[Side]) -> Fairness:
    """Compare what the runs are.

    A different model (by run.json, or by matrix products that share no dimension), element type or GPU forbids a
    comparison of times. A different world size, batch, number of micro-steps or, by the traces, of model FLOPs means
    that a step is other work: with tokens known for every run all figures are given per token, else the comparison is
    refused. Another element type of the parameters is warned of. Everything else is shown.
    """
    firsts = [side.first for side in sides]
    facts = of(firsts)
    refusals = [_refusal(fact) for fact in facts if fact.weight == REFUSE and fact.state == DIFFERS]
    work = [fact for fact in facts if fact.weight == WORK and fact.state == DIFFERS]
    scale, more, notes = _scale(sides, work, (MODEL_FLOPS, SAME) in {(fact.name, fact.state) for fact in facts})
    warnings = [_refusal(fact) for fact in facts if fact.weight == WARN and fact.state == DIFFERS]
    damaged = _damaged(sides)
    if of_hosts := _without_gpu_work(sides):
        return Fairness(facts, STEP, (*damaged, *of_hosts), (), is_damaged=True)
    return Fairness(
        facts,
        scale,
        (*damaged, *refusals, *more, *_without_exchange(sides)),
        (*_absent(sides), *warnings, *notes, *_unknown(facts), *_repeats(sides)),
        is_damaged=bool(damaged),
    )


def _absent(sides: Sequence[Side]) -> list[str]:
    """Runs that lack ranks which another one has: all are compared by those that every run has."""
    rest = "and another run has: compared is what every run has."
    lacking = [side for side in sides if side.first.lacks]
    return [f"{side.label} has no trace of {numbered('rank', side.first.lacks)}, {rest}" for side in lacking]


def _without_gpu_work(sides: Sequence[Side]) -> list[str]:
    """Runs of which hosts alone were recorded, beside others: what else they lack says nothing of their work."""
    captures = [capture for side in sides for capture in side.captures]
    bare = sorted({capture.label for capture in captures if capture.is_of_hosts})
    if not bare or all(capture.is_of_hosts for capture in captures):
        return []
    why = "and another run did: GPU work is what is compared. The report of each says what its CPUs do."
    return [f"{', '.join(bare)} recorded no GPU work, {why}"]


def _damaged(sides: Sequence[Side]) -> list[str]:
    """Runs of which some rank's times cannot be true: a difference to them is none."""
    checks = [(capture.label, capture.table("integrity")) for side in sides for capture in side.captures]
    damages = [(label, integrity.damage_text(table)) for label, table in checks if table is not None]
    return [f"{label}: {what}. Nothing can be concluded of it; record it again." for label, what in damages if what]


def _scale(sides: Sequence[Side], work: list[Fact], has_same_flops: bool) -> tuple[Scale, list[str], list[str]]:
    captures = [capture for side in sides for capture in side.captures]
    with_steps = [bool(capture.steps) for capture in captures]
    if not any(with_steps):
        note = "No run marks complete steps: whole captures are compared, which is fair only if each holds equal work."
        notes = [] if all(capture.is_of_hosts for capture in captures) else [note]  # of hosts nothing is compared
        return CAPTURE, [_refusal(fact) for fact in work], notes
    if not all(with_steps):
        without = ", ".join(sorted({capture.label for capture in captures if not capture.steps}))
        return STEP, [f"{without} marks no complete step and other runs do: a capture is not a step."], []
    tokens = [tokens_per_step(capture) for capture in captures]
    if not work:
        return STEP, [], []
    if alike := _are_alike(sides, work, has_same_flops):
        return STEP, [], [f"{_refusal(fact)} {alike}" for fact in work]
    if None not in tokens and None not in [world_size(capture) for capture in captures]:
        names = ", ".join(fact.name for fact in work)
        return TOKEN, [], [f"A step is not the same work in every run ({names}): figures are per {TOKEN.name}."]
    return (
        STEP,
        [f"{_refusal(fact)} Tokens a step are not known for every run, so nothing can be normalised." for fact in work],
        [],
    )


def _are_alike(sides: Sequence[Side], work: list[Fact], has_same_flops: bool) -> str | None:
    """Why steps may be compared although these facts differ; `None` where they may not."""
    captures = [capture for side in sides for capture in side.captures]
    names = {fact.name for fact in work}
    tokens, *others = {(tokens_per_step(capture), world_size(capture)) for capture in captures}
    if None not in tokens and not others:
        return f"A step of each run still consumes {tokens[0]:,} tokens, so steps are compared."
    if names == {MODEL_FLOPS} and (more := _more_products(sides)):
        return f"All other matrix products are the same, so steps are compared: {more}."
    if has_same_flops and names == {MICRO_STEPS} and _exchange_alike(sides):
        return "A step's model FLOPs are the same, so steps are compared."
    return None


def _more_products(sides: Sequence[Side]) -> str | None:
    """The products of which one run does more, where all others are the same: `base none | other 40 [8192, …] …`."""
    captures = [side.first for side in sides]
    products = (
        dict(contents.of(captures)).get(contents.PRODUCTS) if contents.is_same_but_for_products(captures) else None
    )
    return " | ".join(f"{side.label} {done}" for side, done in zip(sides, products, strict=True)) if products else None


def _exchange_alike(sides: Sequence[Side]) -> bool:
    """Whether gradients are exchanged as often in a step of every run."""
    frames = [side.first.table("micro_steps") for side in sides]
    if any(frame is None for frame in frames):
        return False
    done = [frame["synchronising_micro_steps"].dropna().unique() for frame in frames if frame is not None]
    return len({tuple(sorted(own)) for own in done}) == 1 and bool(len(done[0]))


def _refusal(fact: Fact) -> str:
    return f"{fact.name} differs ({' | '.join(text or 'not known' for text in fact.by_run)}): {fact.why}"


def _without_exchange(sides: Sequence[Side]) -> list[str]:
    """Runs of several ranks that never exchanged gradients in the compared steps, while another run did."""
    calls = {side.label: _gradient_calls(side.first) for side in sides}
    is_known = any(calls.values()) and all(micro_steps(side.first) is not None for side in sides)
    return [
        f"{side.label} launched no all-reduce or reduce-scatter in its {side.first.basis}, and another run did: it may "
        "not have synchronised its gradients in what was captured."
        for side in sides
        if is_known and calls[side.label] == 0 and must_exchange(side.first) is not False
    ]


def must_exchange(capture: Capture) -> bool | None:
    """Whether the run has replicas that must exchange gradients: by its parallel sizes, else by its groups.

    `None` where neither tells: groups whose use is not known, or none at all.
    """
    sizes = parallel_sizes(capture)
    if "dp" in sizes:
        return sizes["dp"] > 1
    groups = capture.table("groups")
    roles = groups["role"] if groups is not None and "role" in groups else None
    if groups is None or roles is None or roles.isna().any():
        return None
    spanned = mesh(groups, world_size(capture))
    if spanned is None:
        return None
    return any(name in spanned for name in ("data parallel", "HSDP"))


def _gradient_calls(capture: Capture) -> int | None:
    frame = capture.table("micro_steps")
    if frame is None or (world_size(capture) or 1) < 2:
        return None
    return int(frame["gradient_calls"].sum())


def _unknown(facts: tuple[Fact, ...]) -> list[str]:
    checked = [fact for fact in facts if fact.weight in {WORK, REFUSE} and fact.name not in OF_SHAPES]
    # What the line that stands first asks for is said there.
    names = [fact.name for fact in checked if fact.state == UNKNOWN and fact.name not in ASKED_FOR]
    if not names:
        return []
    return [f"Not checked (not known for every run): {', '.join(names)}. Add a run.json beside the traces."]


def _repeats(sides: Sequence[Side]) -> list[str]:
    """Repeats that are not repeats."""
    made = []
    for side in sides:
        for name, weight, _, read in FACTS:
            values = {text for capture in side.captures if (text := read(capture)) is not None}
            if len(values) > 1 and weight != NOTE and name != DIMENSIONS:
                differing = " | ".join(sorted(values))
                made.append(f"The captures of {side.label} are no repeats: {name} differs between them ({differing}).")
    return made


def as_frame(facts: Sequence[Fact], runs: Sequence[str]) -> pd.DataFrame:
    """The facts as a table: a row each, a column for each run."""
    rows = [
        {"fact": fact.name, "state": fact.state, **dict(zip(runs, fact.by_run, strict=True)), "why": fact.why}
        for fact in facts
    ]
    return pd.DataFrame(rows)
