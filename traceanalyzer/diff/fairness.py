"""Whether runs did the same work: what differs between them, what is normalised, and what forbids a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import model_flops
from traceanalyzer.diff.captures import Capture, Side
from traceanalyzer.diff.scales import CAPTURE, STEP, TOKEN, Scale, tokens_per_step, world_size

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


@dataclass(frozen=True, slots=True)
class Fairness:
    """What is known of the runs, by what their figures are divided, and why they should not be compared, if so."""

    facts: tuple[Fact, ...]
    scale: Scale
    refusals: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_fair(self) -> bool:
        """Whether the comparison is sound."""
        return not self.refusals

    @property
    def doubt(self) -> str | None:
        """Why the runs are not known to have done the same work; `None` when they are, or are known not to have."""
        unknown = [fact.name for fact in self.facts if fact.name in _WORK_IS_KNOWN_BY and fact.state == UNKNOWN]
        if not unknown or self.refusals:
            return None
        flops = next(fact for fact in self.facts if fact.name == _MODEL_FLOPS)
        both = " | ".join(text or "not known" for text in flops.told)
        told = {
            UNKNOWN: "nor do the traces tell all model FLOPs",
            SAME: f"though model FLOPs a step agree: {both}",
            DIFFERS: f"and model FLOPs a step differ: {both}",
        }[flops.state]
        return f"{', '.join(unknown)} not told for every run, {told}"


def judge(sides: Sequence[Side]) -> Fairness:
    """Compare what the runs are.

    A different model, element type or GPU forbids a comparison of times. A different world size, batch, number of
    micro-steps or, by the traces, of model FLOPs means that a step is other work: with tokens known for every run all
    figures are given per token, else the comparison is refused. Another element type of the parameters is warned of.
    Everything else is told.
    """
    is_close = model_flops.is_close([side.first for side in sides])
    facts = tuple(
        Fact(name, tuple(read(side.first) for side in sides), weight, why, name == _MODEL_FLOPS and is_close)
        for name, weight, why, read in _FACTS
    )
    refusals = [_refusal(fact) for fact in facts if fact.weight == REFUSE and fact.state == DIFFERS]
    work = [fact for fact in facts if fact.weight == WORK and fact.state == DIFFERS]
    scale, more, notes = _scale(sides, work)
    warnings = [_refusal(fact) for fact in facts if fact.weight == WARN and fact.state == DIFFERS]
    return Fairness(
        facts,
        scale,
        (*refusals, *more, *_without_exchange(sides)),
        (*warnings, *notes, *_unknown(facts), *_repeats(sides)),
    )


def _scale(sides: Sequence[Side], work: list[Fact]) -> tuple[Scale, list[str], list[str]]:
    captures = [capture for side in sides for capture in side.captures]
    with_steps = [bool(capture.steps) for capture in captures]
    if not any(with_steps):
        note = "No run marks complete steps: whole captures are compared, which is fair only if each holds equal work."
        return CAPTURE, [_refusal(fact) for fact in work], [note]
    if not all(with_steps):
        without = ", ".join(sorted({capture.label for capture in captures if not capture.steps}))
        return STEP, [f"{without} marks no complete step and other runs do: a capture is not a step."], []
    tokens = [tokens_per_step(capture) for capture in captures]
    is_same_work = _is_same(tokens) and _is_same([world_size(capture) for capture in captures])
    if not work or is_same_work:
        told = [
            f"{_refusal(fact)} A step of each run still consumes {tokens[0]:,} tokens, so steps are compared."
            for fact in work
        ]
        return STEP, [], told
    if None not in tokens and None not in [world_size(capture) for capture in captures]:
        names = ", ".join(fact.name for fact in work)
        return TOKEN, [], [f"A step is not the same work in every run ({names}): figures are per {TOKEN.name}."]
    return (
        STEP,
        [f"{_refusal(fact)} Tokens a step are not known for every run, so nothing can be normalised." for fact in work],
        [],
    )


def _is_same(values: list[int | None]) -> bool:
    return None not in values and len(set(values)) == 1


def _refusal(fact: Fact) -> str:
    return f"{fact.name} differs ({' | '.join(text or 'not known' for text in fact.told)}): {fact.why}"


def _without_exchange(sides: Sequence[Side]) -> list[str]:
    """Runs of several ranks that never exchanged gradients in the compared steps, while another run did."""
    calls = {side.label: _gradient_calls(side.first) for side in sides}
    some = any(count for count in calls.values())
    return [
        f"{label} launched no all-reduce or reduce-scatter in its {basis}, and another run did: it may not have "
        "synchronised its gradients in what was captured."
        for (label, count), basis in zip(calls.items(), (side.first.basis for side in sides), strict=True)
        if some and count == 0 and _has_micro_steps(sides)
    ]


def _has_micro_steps(sides: Sequence[Side]) -> bool:
    return all(_micro_steps(side.first) is not None for side in sides)


def _gradient_calls(capture: Capture) -> int | None:
    frame = capture.table("micro_steps")
    if frame is None or (world_size(capture) or 1) < 2:
        return None
    return int(frame["gradient_calls"].sum())


def _unknown(facts: tuple[Fact, ...]) -> list[str]:
    checked = [fact for fact in facts if fact.weight in {WORK, REFUSE} and fact.name != _MODEL_FLOPS]
    names = [fact.name for fact in checked if fact.state == UNKNOWN]
    if not names:
        return []
    return [f"Not known for every run, so not checked: {', '.join(names)}. A run.json beside the traces tells."]


def _repeats(sides: Sequence[Side]) -> list[str]:
    """Repeats that are not repeats."""
    made = []
    for side in sides:
        for name, weight, _, read in _FACTS:
            told = {text for capture in side.captures if (text := read(capture)) is not None}
            if len(told) > 1 and weight != NOTE:
                differing = " | ".join(sorted(told))
                made.append(f"The captures of {side.label} are no repeats: {name} differs between them ({differing}).")
    return made


def _distinct(column: str) -> Callable[[Capture], str | None]:
    def read(capture: Capture) -> str | None:
        frame = capture.table("ranks")
        known = sorted(frame[column].dropna().astype("str").unique()) if frame is not None else []
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
    frame = capture.table("ranks")
    return ", ".join(str(rank) for rank in sorted(frame["rank"])) if frame is not None else None


def _tokens(capture: Capture) -> str | None:
    tokens = tokens_per_step(capture)
    return None if tokens is None else f"{tokens:,}"


def _micro_steps(capture: Capture) -> str | None:
    """`4, gradients exchanged in 1`: of the compared steps, from the traces, else from run.json."""
    frame = capture.table("micro_steps")
    if frame is not None:
        own = frame[frame["step"].isin(capture.steps)] if capture.steps else frame
        pairs = own[["micro_steps", "synchronising_micro_steps"]].dropna().drop_duplicates()
        if len(pairs):
            return "; ".join(
                f"{number}, gradients exchanged in {done}" for number, done in pairs.itertuples(index=False)
            )
    batch = capture.info.batch if capture.info else None
    return None if batch is None or batch.grad_accum is None else f"{batch.grad_accum}"


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


def _versions(capture: Capture) -> str | None:
    stated = capture.info.versions if capture.info and capture.info.versions else {}
    ours = [f"{name} {version}" for name, version in stated.items() if version]
    return ", ".join(ours) or _distinct("versions")(capture)


def _captured(capture: Capture) -> str:
    return f"{len(capture.steps)} ({capture.basis})" if capture.steps else "whole capture"


_MODEL_FLOPS = "model FLOPs a step"

_WORK_IS_KNOWN_BY = ("model", "dtype", "tokens a step")

_FACTS: tuple[tuple[str, str, str, Callable[[Capture], str | None]], ...] = (
    ("GPU", REFUSE, "times on different GPUs say nothing of the strategies.", _gpu),
    ("model", REFUSE, "different models do different work.", _model),
    ("dtype", REFUSE, "another element type is other work.", _of_info("dtype")),
    (
        "dtype of parameters",
        WARN,
        "cast before use they make norms and element-wise kernels faster too: the strategy is not the only difference.",
        _of_info("param_dtype"),
    ),
    ("world size", WORK, "a step is shared by another number of ranks.", _world_size),
    ("tokens a step", WORK, "a step is another amount of work.", _tokens),
    ("micro-steps a step", WORK, "a step is another number of forward and backward passes.", _micro_steps),
    (_MODEL_FLOPS, WORK, "a step is another amount of work.", model_flops.told),
    (
        "bytes of all-reduce and reduce-scatter a step",
        NOTE,
        "another model, another element type in the exchange, or another strategy.",
        _gradient_bytes,
    ),
    ("ranks with a trace", NOTE, "means over ranks are of these.", _ranks),
    ("steps compared", NOTE, "figures are per step.", _captured),
    ("compiled", NOTE, "kernels of a compiled model have other names.", _of_info("compile")),
    ("activation checkpointing", NOTE, "the forward pass runs twice.", _of_info("activation_checkpointing")),
    ("software", NOTE, "versions decide which kernels run.", _versions),
    ("trace format", NOTE, "profilers slow the host by different amounts.", _distinct("format")),
    ("host", NOTE, "links and CPUs may differ.", _distinct("host")),
)
"""In the order in which they are shown."""

__all__ = ["DIFFERS", "REFUSE", "SAME", "UNKNOWN", "WORK", "Fact", "Fairness", "judge"]


def as_frame(facts: Sequence[Fact], runs: Sequence[str]) -> pd.DataFrame:
    """The facts as a table: a row each, a column for each run."""
    rows = [
        {"fact": fact.name, "state": fact.state, **dict(zip(runs, fact.told, strict=True)), "why": fact.why}
        for fact in facts
    ]
    return pd.DataFrame(rows)
