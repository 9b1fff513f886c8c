"""Whether runs did the same work: what differs between them, what is normalised, and what forbids a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.communication.mesh import mesh_of
from traceanalyzer.analyses.integrity import untrue
from traceanalyzer.diff import contents
from traceanalyzer.diff.captures import Capture, Side
from traceanalyzer.diff.different import ASKED_FOR
from traceanalyzer.diff.facts import (
    DIFFERS,
    DIMENSIONS,
    FACTS,
    MICRO_STEPS,
    MODEL_FLOPS,
    NOTE,
    OF_SHAPES,
    REFUSE,
    SAME,
    UNKNOWN,
    WARN,
    WORK,
    Fact,
    micro_steps,
)
from traceanalyzer.diff.facts import of as facts_of
from traceanalyzer.diff.scales import CAPTURE, STEP, TOKEN, Scale, tokens_per_step, world_size
from traceanalyzer.diff.surroundings import parallel_sizes
from traceanalyzer.meaning.listed import numbered

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
        both = " | ".join(text or "not known" for text in flops.told)
        told = {
            UNKNOWN: "nor do the traces tell all model FLOPs",
            SAME: f"though model FLOPs a step agree: {both}",
            DIFFERS: f"and model FLOPs a step differ: {both}",
        }[flops.state]
        return f"{', '.join(unknown)} not told for every run, {told}"

    @property
    def _is_same_by_traces(self) -> bool:
        """Whether every trace tells the same FLOPs, the same sizes of matrices and the same element type."""
        of_shapes = [fact.told for fact in self.facts if fact.name in OF_SHAPES]
        return all(None not in told and len(set(told)) == 1 for told in of_shapes)


def judge(sides: Sequence[Side]) -> Fairness:
    """Compare what the runs are.

    A different model (by run.json, or by matrix products that share no dimension), element type or GPU forbids a
    comparison of times. A different world size, batch, number of micro-steps or, by the traces, of model FLOPs means
    that a step is other work: with tokens known for every run all figures are given per token, else the comparison is
    refused. Another element type of the parameters is warned of. Everything else is told.
    """
    firsts = [side.first for side in sides]
    facts = facts_of(firsts)
    refusals = [_refusal(fact) for fact in facts if fact.weight == REFUSE and fact.state == DIFFERS]
    work = [fact for fact in facts if fact.weight == WORK and fact.state == DIFFERS]
    scale, more, notes = _scale(sides, work, _has_same_flops(facts))
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
    said = "and another run has: compared is what every run has."
    lacking = [side for side in sides if side.first.lacks]
    return [f"{side.label} has no trace of {numbered('rank', side.first.lacks)}, {said}" for side in lacking]


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
    held = [(capture.label, capture.table("integrity")) for side in sides for capture in side.captures]
    told = [(label, untrue.told(table)) for label, table in held if table is not None]
    return [f"{label}: {what}. Nothing can be concluded of it; record it again." for label, what in told if what]


def _has_same_flops(facts: Sequence[Fact]) -> bool:
    """Whether every run's traces tell a step's model FLOPs, and they are the same."""
    return any(fact.name == MODEL_FLOPS and fact.state == SAME for fact in facts)


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
    tokens, names = [tokens_per_step(capture) for capture in captures], {fact.name for fact in work}
    if _is_same(tokens) and _is_same([world_size(capture) for capture in captures]):
        return f"A step of each run still consumes {tokens[0]:,} tokens, so steps are compared."
    if names == {MODEL_FLOPS} and (more := _more_products(sides)):
        return f"All other matrix products are the same, so steps are compared: {more}."
    if has_same_flops and names == {MICRO_STEPS} and _exchange_alike(sides):
        return "A step's model FLOPs are the same, so steps are compared."
    return None


def _more_products(sides: Sequence[Side]) -> str | None:
    """The products of which one run does more, where all others are the same: `base none | other 40 [8192, …] …`."""
    captures = [side.first for side in sides]
    told = dict(contents.of(captures)).get(contents.PRODUCTS) if contents.is_same_but_for_products(captures) else None
    return " | ".join(f"{side.label} {done}" for side, done in zip(sides, told, strict=True)) if told else None


def _exchange_alike(sides: Sequence[Side]) -> bool:
    """Whether gradients are exchanged as often in a step of every run."""
    frames = [side.first.table("micro_steps") for side in sides]
    if any(frame is None for frame in frames):
        return False
    done = [frame["synchronising_micro_steps"].dropna().unique() for frame in frames if frame is not None]
    return len({tuple(sorted(own)) for own in done}) == 1 and bool(len(done[0]))


def _is_same(values: list[int | None]) -> bool:
    return None not in values and len(set(values)) == 1


def _refusal(fact: Fact) -> str:
    return f"{fact.name} differs ({' | '.join(text or 'not known' for text in fact.told)}): {fact.why}"


def _without_exchange(sides: Sequence[Side]) -> list[str]:
    """Runs of several ranks that never exchanged gradients in the compared steps, while another run did."""
    calls = {side.label: _gradient_calls(side.first) for side in sides}
    some = any(count for count in calls.values())
    return [
        f"{side.label} launched no all-reduce or reduce-scatter in its {side.first.basis}, and another run did: it may "
        "not have synchronised its gradients in what was captured."
        for side in sides
        if some and calls[side.label] == 0 and _has_micro_steps(sides) and must_exchange(side.first) is not False
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
    spanned = mesh_of(groups, world_size(capture))
    if spanned is None:
        return None
    return any(name in spanned for name in ("data parallel", "HSDP"))


def _has_micro_steps(sides: Sequence[Side]) -> bool:
    return all(micro_steps(side.first) is not None for side in sides)


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
    return [f"Not checked, as a run does not tell: {', '.join(names)}. A run.json beside the traces tells."]


def _repeats(sides: Sequence[Side]) -> list[str]:
    """Repeats that are not repeats."""
    made = []
    for side in sides:
        for name, weight, _, read in FACTS:
            told = {text for capture in side.captures if (text := read(capture)) is not None}
            if len(told) > 1 and weight != NOTE and name != DIMENSIONS:
                differing = " | ".join(sorted(told))
                made.append(f"The captures of {side.label} are no repeats: {name} differs between them ({differing}).")
    return made


def as_frame(facts: Sequence[Fact], runs: Sequence[str]) -> pd.DataFrame:
    """The facts as a table: a row each, a column for each run."""
    rows = [
        {"fact": fact.name, "state": fact.state, **dict(zip(runs, fact.told, strict=True)), "why": fact.why}
        for fact in facts
    ]
    return pd.DataFrame(rows)
