"""The line that stands first in every comparison: in what the runs differ besides their times, and what follows."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from traceanalyzer.diff import contents, surroundings
from traceanalyzer.diff.facts import (
    COMMUNICATION,
    DIFFERS,
    DIMENSIONS,
    ELEMENT_TYPE,
    EXCHANGING,
    MICRO_STEPS,
    MODEL_FLOPS,
    TRACED,
    UNKNOWN,
    Fact,
)

SURROUNDINGS, RECORDING, RANKS, SETTING, WORK = "surroundings", "recording", "ranks", "setting", "work"
"""What a run stands in, what it was recorded with and of whom, what was chosen for it, and what a step computes."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("GPU", "links", "host", *surroundings.PACKAGES), SURROUNDINGS),
        **dict.fromkeys(("profiler", "profiler's options"), RECORDING),
        "Nsight Systems": RECORDING,
        TRACED: RANKS,
        **dict.fromkeys(
            ("strategy", "parallel sizes", "dtype of parameters", "compiled", "kernels made by a compiler",
             "activation checkpointing", "schedule of the pipeline", "blocks by stage", "streams of copies",
             MICRO_STEPS, EXCHANGING, COMMUNICATION), SETTING),
        **dict.fromkeys(contents.NAMES, SETTING),
        **dict.fromkeys(("model", "dtype", "world size", "tokens a step", MODEL_FLOPS, DIMENSIONS, ELEMENT_TYPE), WORK),
    }
)  # fmt: skip
"""Facts that the line names; others are told further down."""

NOTHING = "A difference of times is the code's, or noise."
"""What follows where nothing differs."""

ASKED_FOR = ("PyTorch", "NCCL", "driver", "links", "parallel sizes", "tokens a step")
"""Facts whose being unknown the line says."""


_FEW_RUNS = 3
"""Of so many each is told in its place; of more, what is not as in the first, with the names of the runs."""

_MOST_VALUES = 4

_MOST_NAMES = 3


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
        follows = "Their times say nothing of each other."
    if unknown and follows == NOTHING:
        follows = f"Where those are the same, {NOTHING[0].lower()}{NOTHING[1:]}"
    return f"Different: {listed or 'nothing that the runs tell'}.{asked} {follows}"


def _listed(fact: Fact, runs: Sequence[str]) -> str:
    """`driver 570 | 580`; of many runs `compiled False | True in a, b and 4 more`, or how many kinds there are."""
    told = [text or "not known" for text in fact.told]
    by_value = {value: [run for run, own in zip(runs, told, strict=True) if own == value] for value in told}
    if len(runs) <= _FEW_RUNS:
        return f"{fact.name} {' | '.join(told)}"
    if len(by_value) > _MOST_VALUES:
        return f"{fact.name} ({len(by_value)} kinds)"
    base, *others = by_value
    return " | ".join([f"{fact.name} {base}", *(f"{value} in {_names(by_value[value])}" for value in others)])


def _names(runs: Sequence[str]) -> str:
    more = len(runs) - _MOST_NAMES
    if more > 1:
        return f"{', '.join(runs[:_MOST_NAMES])} and {more} more"
    *first, last = runs
    return f"{', '.join(first)} and {last}" if first else last


def _conclusion(kinds: set[str], count: int, *, is_fair: bool, has_own_times: bool) -> str:
    if not is_fair:
        return "They did not do the same work: their times say nothing of each other."
    said = []
    if RECORDING in kinds:
        own = "the step times without a profiler are" if has_own_times else "kernels' durations are"
        said.append(f"Profilers slow hosts by different amounts: step times, idle and waits are not comparable, {own}.")
    if SURROUNDINGS in kinds:
        said.append(
            "What the surroundings and what the settings do to the times cannot be told apart."
            if SETTING in kinds or WORK in kinds
            else "A difference of times may come from the surroundings and not from the code."
        )
    if not said and SETTING in kinds:
        said.append(f"A difference of times may come from {'it' if count == 1 else 'any of them'}.")
    if RANKS in kinds:
        said.append("Means over ranks, and waits for ranks without a trace, are not comparable.")
    if not said and WORK in kinds:
        said.append("Figures are of unequal steps, made comparable as said below.")
    return " ".join(said) or NOTHING
