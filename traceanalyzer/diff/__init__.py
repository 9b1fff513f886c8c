"""Results of several runs beside each other: what differs, in what, and whether the comparison is fair."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from traceanalyzer.analyses import integrity
from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.diff import facts as diff_facts
from traceanalyzer.diff import joins, metrics
from traceanalyzer.diff.captures import CAPTURE, STEP, TOKEN, Capture, Scale, Side, tokens_per_step, world_size
from traceanalyzer.diff.facts import (
    DIFFERS,
    DIMENSIONS,
    MICRO_STEPS,
    MODEL_FLOPS,
    NOTE,
    OF_SHAPES,
    PRODUCTS,
    RANKS,
    RECORDING,
    REFUSE,
    SAME,
    SETTING,
    SURROUNDINGS,
    UNKNOWN,
    WARN,
    WORK,
    Fact,
    micro_steps,
    more_products,
    parallel_sizes,
)
from traceanalyzer.diff.joins import TableDiff
from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.vocabulary import MOST_PIECES, numbered

# The line that stands first in every comparison: in what the runs differ besides their times, and what follows.


_NOTHING = "A time difference comes from the code, or is noise."
"""What follows where nothing differs."""

_ASKED_FOR = ("PyTorch", "NCCL", "driver", "links", "parallel sizes", "tokens a step")
"""Facts whose being unknown the line says."""


def _listed(fact: Fact) -> str:
    """`driver 570 | 580`; of many runs how many kinds there are."""
    many = len(fact.by_run) > MOST_PIECES
    return f"{fact.name} ({len(set(fact.by_run))} kinds)" if many else f"{fact.name} {fact.in_each}"


def _conclusion(kinds: Sequence[str], *, is_fair: bool, has_own_times: bool) -> str:
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
        sentences.append(f"A time difference may come from {'it' if len(kinds) == 1 else 'any of them'}.")
    if RANKS in kinds:
        sentences.append("Means over ranks, and waits for ranks without a trace, are not comparable.")
    if not sentences and WORK in kinds:
        sentences.append("Figures are of unequal steps, made comparable as said below.")
    return " ".join(sentences) or _NOTHING


# What the figures are divided by, and what forbids to compare them.


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

    def line(self, *, has_own_times: bool = False) -> str:
        """`Different: driver 570 | 580; links NV18 | SYS.` and what may then be concluded.

        Args:
            has_own_times: whether every run tells its step time without a profiler.
        """
        differing = [fact for fact in self.facts if fact.kind and fact.state == DIFFERS]
        listed = "; ".join(_listed(fact) for fact in differing)
        unknown = [fact.name for fact in self.facts if fact.state == UNKNOWN and fact.name in _ASKED_FOR]
        asked = f" Not known of every run: {', '.join(unknown)}." if unknown else ""
        follows = _conclusion([fact.kind for fact in differing], is_fair=self.is_fair, has_own_times=has_own_times)
        if self.is_damaged:
            follows = "Their times are not comparable."
        if unknown and follows == _NOTHING:
            follows = f"Where those are the same, {_NOTHING[0].lower()}{_NOTHING[1:]}"
        return f"{f'Different: {listed}' if listed else 'No known difference'}.{asked} {follows}"

    @property
    def doubt(self) -> str | None:
        """Why the runs are not known to have done the same work; `None` when they are, or it is known in what not."""
        facts = {fact.name: fact for fact in self.facts}
        unknown = [name for name in ("model", "dtype", "tokens a step") if facts[name].state == UNKNOWN]
        # Every trace may tell the same FLOPs, the same sizes of matrices and the same element type.
        shapes = [facts[name].by_run for name in OF_SHAPES]
        is_same_by_traces = all(None not in values and len(set(values)) == 1 for values in shapes)
        if not unknown or self.refusals or is_same_by_traces or PRODUCTS in facts:
            return None
        flops = facts[MODEL_FLOPS]
        says = {
            UNKNOWN: "and the traces do not give all model FLOPs",
            SAME: f"though model FLOPs a step agree: {flops.in_each}",
            DIFFERS: f"and model FLOPs a step differ: {flops.in_each}",
        }[flops.state]
        return f"{', '.join(unknown)} not known for every run, {says}"


def judge(sides: Sequence[Side]) -> Fairness:
    """Compare what the runs are.

    A different model (by run.json, or by matrix products that share no dimension), element type or GPU forbids a
    comparison of times. A different world size, batch, number of micro-steps or, by the traces, of model FLOPs means
    that a step is other work: with tokens known for every run all figures are given per token, else the comparison is
    refused. Another element type of the parameters is warned of. Everything else is shown.
    """
    facts = diff_facts.of([side.first for side in sides])
    damaged = _damaged(sides)
    if of_hosts := _without_gpu_work(sides):
        return Fairness(facts, STEP, (*damaged, *of_hosts), (), is_damaged=True)
    differing = {
        weight: [fact for fact in facts if fact.weight == weight and fact.state == DIFFERS]
        for weight in (REFUSE, WARN, WORK)
    }
    scale, more, notes = _scale(sides, differing[WORK], facts)
    return Fairness(
        facts,
        scale,
        (*damaged, *map(_sentence, differing[REFUSE]), *more, *_without_exchange(sides)),
        (*_absent(sides), *map(_sentence, differing[WARN]), *notes, *_unknown(facts), *_repeats(sides)),
        is_damaged=bool(damaged),
    )


def _sentence(fact: Fact) -> str:
    return f"{fact.name} differs ({fact.in_each}): {fact.why}"


def _absent(sides: Sequence[Side]) -> list[str]:
    """Runs that lack ranks which another one has: all are compared by those that every run has."""
    rest = "and another run has: compared is what every run has."
    lacking = [side for side in sides if side.first.lacks]
    return [f"{side.label} has no trace of {numbered('rank', side.first.lacks)}, {rest}" for side in lacking]


def _without_gpu_work(sides: Sequence[Side]) -> list[str]:
    """Runs of which CPUs alone were recorded, beside others: what else they lack says nothing of their work."""
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


def _scale(sides: Sequence[Side], work: Sequence[Fact], facts: Sequence[Fact]) -> tuple[Scale, list[str], list[str]]:
    """By what figures are divided; refusals; notes."""
    captures = [capture for side in sides for capture in side.captures]
    without = sorted({capture.label for capture in captures if not capture.steps})
    sentences = [_sentence(fact) for fact in work]
    if not any(capture.steps for capture in captures):
        note = "No run marks complete steps: whole captures are compared, which is fair only if each holds equal work."
        # Of CPUs nothing is compared.
        return CAPTURE, sentences, [] if all(capture.is_of_hosts for capture in captures) else [note]
    if without:
        why = "marks no complete step and other runs do: a capture is not a step."
        return STEP, [f"{', '.join(without)} {why}"], []
    if not work:
        return STEP, [], []
    if alike := _are_alike(sides, work, facts):
        return STEP, [], [f"{sentence} {alike}" for sentence in sentences]
    if all(tokens_per_step(capture) and world_size(capture) for capture in captures):
        names = ", ".join(fact.name for fact in work)
        return TOKEN, [], [f"A step is not the same work in every run ({names}): figures are per {TOKEN.name}."]
    why = "Tokens a step are not known for every run, so nothing can be normalised."
    return STEP, [f"{sentence} {why}" for sentence in sentences], []


def _are_alike(sides: Sequence[Side], work: Sequence[Fact], facts: Sequence[Fact]) -> str | None:
    """Why steps may be compared although these facts differ; `None` where they may not."""
    names = {fact.name for fact in work}
    sizes = {(tokens_per_step(capture), world_size(capture)) for side in sides for capture in side.captures}
    (tokens, size), *others = sizes
    if tokens and size and not others:
        return f"A step of each run still consumes {tokens:,} tokens, so steps are compared."
    if names == {MODEL_FLOPS} and (products := more_products([side.first for side in sides])):
        done = " | ".join(f"{side.label} {own}" for side, own in zip(sides, products, strict=True))
        return f"All other matrix products are the same, so steps are compared: {done}."
    has_same_flops = any(fact.name == MODEL_FLOPS and fact.state == SAME for fact in facts)
    if has_same_flops and names == {MICRO_STEPS} and _exchange_alike(sides):
        return "A step's model FLOPs are the same, so steps are compared."
    return None


def _exchange_alike(sides: Sequence[Side]) -> bool:
    """Whether gradients are exchanged as often in a step of every run."""
    frames = [side.first.table("micro_steps") for side in sides]
    done = [() if own is None else tuple(sorted(own["synchronising_micro_steps"].dropna().unique())) for own in frames]
    return len({*done}) == 1 and bool(done[0])


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
    if groups is None or "role" not in groups or groups["role"].isna().any():
        return None
    spanned = mesh(groups, world_size(capture))
    return None if spanned is None else any(name in spanned for name in ("data parallel", "HSDP"))


def _gradient_calls(capture: Capture) -> int | None:
    frame = capture.table("micro_steps")
    if frame is None or (world_size(capture) or 1) < 2:
        return None
    return int(frame["gradient_calls"].sum())


def _unknown(facts: Sequence[Fact]) -> list[str]:
    """What was not checked; what the first line asks for is said there."""
    checked = [fact for fact in facts if fact.weight in {WORK, REFUSE} and fact.name not in (*OF_SHAPES, *_ASKED_FOR)]
    names = [fact.name for fact in checked if fact.state == UNKNOWN]
    if not names:
        return []
    return [f"Not checked (not known for every run): {', '.join(names)}. Add a run.json beside the traces."]


def _repeats(sides: Sequence[Side]) -> list[str]:
    """Repeats that are not repeats."""
    made = []
    for side in sides:
        for name, weight, _, _, read in diff_facts.FACTS:
            values = {text for capture in side.captures if (text := read(capture)) is not None}
            if len(values) > 1 and weight != NOTE and name != DIMENSIONS:
                differing = " | ".join(sorted(values))
                made.append(f"The captures of {side.label} are no repeats: {name} differs between them ({differing}).")
    return made


__all__ = ["Capture", "Comparison", "Fairness", "Side", "TableDiff", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Runs beside each other; the first is the base. Tables are joined when they are asked for.

    Attributes:
        sides: the runs.
        fairness: what differs between them.
        metrics: a row for each figure and run, with its difference to the base (`diff.metrics.COLUMNS`).
        is_forced: made although it is not fair.
    """

    sides: tuple[Side, ...]
    fairness: Fairness
    metrics: pd.DataFrame
    is_forced: bool = False

    @property
    def base(self) -> Side:
        """The run that others are compared with."""
        return self.sides[0]

    @property
    def others(self) -> tuple[Side, ...]:
        """The other runs."""
        return self.sides[1:]

    @property
    def runs(self) -> list[str]:
        """Names of all runs, base first."""
        return [side.label for side in self.sides]

    def side(self, run: str) -> Side:
        """The run of that name."""
        return next(side for side in self.sides if side.label == run)

    def values(self, metric: str, run: str) -> list[Any]:
        """A figure's value in the base and in the run; `None` where it is not known."""
        return [metrics.value(self.metrics, metric, one) for one in (self.base.label, run)]

    @property
    def ranking(self) -> list[str]:
        """Runs by step time (or time per token), shortest first."""
        steps = {run: metrics.value(self.metrics, "step_ns", run) for run in self.runs}
        return sorted(steps, key=lambda run: (steps[run] is None, steps[run] or 0.0))

    @property
    def different(self) -> str:
        """In what the runs differ besides their times, and what follows: the first line of every report of it."""
        own_times = (metrics.value(self.metrics, "unprofiled_step_ns", run) for run in self.runs)
        return self.fairness.line(has_own_times=None not in own_times)

    @cached_property
    def tables(self) -> dict[str, list[TableDiff]]:
        """For each other run its tables joined with the base's."""
        return {side.label: joins.tables(self.base.first, side.first, self.fairness.scale) for side in self.others}

    def table(self, run: str, analysis: str) -> TableDiff | None:
        """An analysis' table of a run, joined with the base's; `None` where it has none."""
        return next((table for table in self.tables[run] if table.analysis == analysis), None)

    @property
    def is_empty(self) -> bool:
        """Whether no figure and no table of any other run differs from the base's."""
        if self.metrics[["change", "change_pct_points"]].fillna(0).to_numpy(dtype=float).any():
            return False
        return not any(table.differing for tables in self.tables.values() for table in tables)


def compare(sides: Sequence[Side], *, force: bool = False) -> Comparison:
    """Compare runs with the first of them.

    Args:
        sides: two or more runs.
        force: compare even what did not do the same work.

    Raises:
        UsageError: fewer than two runs, or they are not comparable and `force` is not set.
    """
    if len(sides) < 2:
        raise UsageError("diff takes at least two runs: BASE OTHER [OTHER…]")
    judged = judge(sides)
    if not judged.is_fair and not force:
        reasons = "".join(f"\n  - {reason}" for reason in judged.refusals)
        what = "cannot be compared" if judged.is_damaged else "did not do the same work"
        how = "`analyze-traces diff --force` (in Python force=True) compares them all the same, and says so."
        raise UsageError(f"{judged.line()}\nthese runs {what}:{reasons}\n{how}")
    return Comparison(tuple(sides), judged, metrics.table(sides, judged.scale), is_forced=not judged.is_fair)
