"""All findings of a run: every kind is asked, every change replayed, one finding kept for each cause."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.analyses.integrity import DIFFERENT_JOBS, untrue_ranks
from traceanalyzer.analyses.integrity.checks import LOST_AMID, SHIFTED, TRUNCATED
from traceanalyzer.analyses.replay.changes import EVEN, PEERS, USUAL
from traceanalyzer.analyses.replay.critical_path import bottleneck_after
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.errors import Failure
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import Question, Saves, savings_of
from traceanalyzer.meaning.vocabulary import HIGH, INFO, MEDIUM, SEVERITIES
from traceanalyzer.model.tables import pandas_set_up

Kind = Callable[..., Iterable[Finding]]

GROUPS = ("Input and CPU", "Uneven ranks", "Communication", "Compute", "Memory and copies", "The capture")
"""Of the cookbook, in its order."""


@cache
def every_kind() -> tuple[Kind, ...]:
    """All of them, in the cookbook's order."""
    here = str(Path(__file__).parent)
    modules = {one.name: import_module(f"{__package__}.{one.name}") for one in iter_modules([here])}
    kinds = [name for name, module in modules.items() if hasattr(module, name)]
    kinds.sort(key=lambda name: (GROUPS.index(modules[name].PLACE[0]), modules[name].PLACE[1], name))
    return tuple(getattr(modules[name], name) for name in kinds)


# Every kind of finding: the modules of this package that define a function of their own name. It takes the run and the
# Results that it names; its name is the kind's id. The module's docstring is its section of the cookbook, and `PLACE`
# that section's group and number in it; findings that are otherwise equal follow the same order.


NEEDED = (
    "headline",
    "steps",
    "replay",
    "places",
    "ranks",
    "integrity",
    "cuda_api",
    "kernels",
    "operators",
    "iterations",
)
"""Results that every run of the kinds reads."""


@pandas_set_up()
def find(results: Results, failures: list[Failure] | None = None) -> tuple[Finding, ...]:
    """All findings in reading order.

    With a list of what could not be computed, kinds that need it are left out, and kinds that fail are added to it.
    """
    if results["headline"].table.empty:
        return ()
    run = Run.of(results)
    facts = [fact for kind in every_kind() for fact in _facts(kind, run, failures)]
    found = ordered(merged(weighed(believable(facts, results), run), run))
    return tuple(with_next_bottleneck(finding, run) for finding in found)


def results_of_kinds() -> tuple[str, ...]:
    """Names of the analyses whose Results the kinds read."""
    named = {name for kind in every_kind() for name in _parameters(kind)} | {*NEEDED}
    return tuple(name for name in ANALYSES if name in named)


def _facts(kind: Kind, run: Run, failures: list[Failure] | None) -> list[Finding]:
    names = _parameters(kind)
    lost = {name for failure in failures or () for name in (failure.name, *failure.left_out)}
    if lost & {*names}:
        return []
    given: dict[str, Result] = {name: run.results[name].complete() for name in names}
    try:
        return [replace(fact, kind=kind.__name__, sources=names) for fact in kind(run, **given)]
    except Exception as error:
        if failures is None:
            raise
        failures.append(Failure.of(kind.__name__, f"Finding {kind.__name__}", error))
        return []


@cache
def _parameters(kind: Kind) -> tuple[str, ...]:
    """The Results that a kind names, after the run."""
    return tuple(inspect.signature(kind).parameters)[1:]


def weighed(facts: Sequence[Finding], run: Run) -> list[Finding]:
    """The findings with what their changes save and the severity of that; facts where nothing can be replayed."""
    asked = [fact for fact in facts if fact.changes and fact.saves is None and run.can_replay(*fact.changes)]
    if run.engine is None:
        return [fact if fact.is_about_capture else replace(fact, severity=INFO) for fact in facts]
    questions = [Question(fact.changes, half_of=fact.half_of, is_once=_is_once(fact, run)) for fact in asked]
    savings = {id(fact): fact.saves for fact in facts if fact.saves is not None}
    savings |= {id(fact): saves for fact, saves in zip(asked, savings_of(run.engine, questions), strict=True)}
    return [
        _with_savings(fact, savings[id(fact)])
        if id(fact) in savings
        else fact
        if fact.is_about_capture
        else replace(fact, severity=INFO)
        for fact in facts
    ]


def _with_savings(fact: Finding, saves: Saves) -> Finding:
    """The finding with what it saves, and why that is more than the time that its headline gives, where it is."""
    is_more = fact.stated_ns is not None and saves.likely_ns > fact.stated_ns
    why = f"{fact.why} What follows starts sooner, too, so the saving is larger." if is_more else fact.why
    return replace(fact, saves=saves, severity=saves.severity, why=why)


def with_next_bottleneck(finding: Finding, run: Run) -> Finding:
    """The finding with what bounds the step once it is fixed, where that is something else than now."""
    path = run.results.get("bottleneck")
    if finding.saves is None or not finding.leads or run.engine is None or path is None or not _is_replayed(finding):
        return finding
    then = bottleneck_after(run.engine, *Question(finding.changes, finding.half_of).least).bound
    return finding if then in (None, path.bound) else replace(finding, saves=replace(finding.saves, then=then or ""))


def _is_once(fact: Finding, run: Run) -> bool:
    """Whether it was seen in one step of several: whether it recurs is unknown."""
    return fact.steps is not None and len(fact.steps) == 1 and run.count > 1


def merged(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """One finding for each cause: two whose changes shorten mostly the same parts of the job are one.

    So is what saves little once a straggler is fixed. A straggler leads, first one whose work is dealt out rather than
    gone, else the one that saves more for sure. The others are its signs.
    """
    leading = [item for item in findings if item.saves is not None and not item.is_nothing and _is_replayed(item)]
    if run.engine is None or len(leading) < 2:
        return list(findings)
    shortened = run.engine.shortened([finding.changes for finding in leading])

    def key(place: int) -> tuple[Any, ...]:
        finding = leading[place]
        is_gone = all(change.to != EVEN for change in finding.changes)
        return not finding.ranks, is_gone, _key(finding, has_lead=True, ideal=SHARE)

    order = sorted(range(len(leading)), key=key)
    lead_of: dict[int, int] = {}
    for place in order:
        lead_of[place] = next(
            (
                lead
                for lead in dict.fromkeys(lead_of.values())
                if _are_alike(shortened[:, place], shortened[:, lead]) or _explains(leading[lead], leading[place], run)
            ),
            place,
        )
    signs = {lead: tuple(leading[place] for place in order if lead_of[place] == lead != place) for lead in lead_of}
    taken_in = {id(leading[place]) for place, lead in lead_of.items() if lead != place}
    also = {id(leading[lead]): own for lead, own in signs.items()}
    return [replace(finding, also=also.get(id(finding), ())) for finding in findings if id(finding) not in taken_in]


def _explains(straggler: Finding, other: Finding, run: Run) -> bool:
    """Whether most of what a change that is about no straggler saves is gone once the straggler is fixed."""
    own_ns, other_ns = (finding.saves.likely_ns if finding.saves else 0 for finding in (straggler, other))
    if not straggler.ranks or other.ranks or own_ns < SHARE * other_ns:
        return False
    return run.saved_ns(*straggler.changes, *other.changes) - own_ns < SHARE * other_ns


def _is_replayed(finding: Finding) -> bool:
    """Whether it changes the graph; another schedule is played apart."""
    return bool(finding.changes) and all(change.part != "schedule" for change in finding.changes)


def _are_alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether most of the time that either change takes away is taken away by both."""
    either = float(np.maximum(one, other).sum())
    return either > 0 and float(np.minimum(one, other).sum()) >= SHARE * either


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, first to read first.

    By the lower end of what they save, the narrower interval first of the same. Then facts without a saving, then what
    is about the capture, which comes first only where no finding leads, and last what saves nothing.
    """
    every = list(findings)
    has_lead = any(finding.leads for finding in every)
    return sorted(every, key=lambda finding: _key(finding, has_lead=has_lead))


def _key(finding: Finding, *, has_lead: bool, ideal: float = 1.0) -> tuple[int, float, float]:
    """How findings are ordered: `ideal` is how much the lower end of an ideal counts beside that of a fix."""
    saves = finding.saves
    if finding.is_about_capture:
        is_first = not has_lead and finding.severity != SEVERITIES[-2]
        return (1 if is_first else 3), SEVERITIES.index(finding.severity), 0
    if finding.leads and saves is not None:
        return 0, -saves.low_ns * (ideal if finding.half_of else 1), saves.high_ns - saves.low_ns
    return (4 if finding.is_nothing else 2), -(saves.likely_ns if saves else 0), bool(finding.half_of)


# What may still be concluded of a capture that lacks something.


def believable(facts: Sequence[Finding], results: Results) -> list[Finding]:
    """The facts that hold of what was recorded.

    None about a rank of which nothing is known, none that compares ranks that were recorded apart, or steps that are
    numbered otherwise. Where the capture lets nothing be concluded, facts keep no change, so that none leads; else what
    they save is an upper bound, with what the capture lacks as the reason.
    """
    integrity = results["integrity"].to_frame()
    has = {*integrity["check"]}
    spoilt = spoilt_ranks(results["integrity"])
    if results["headline"].table["steps"].isna().all():  # no step is without a loss
        spoilt |= {*integrity.loc[(integrity["check"] == LOST_AMID) & (integrity["severity"] == MEDIUM), "rank"]}
    if untrue_ranks(integrity):  # lengths of steps rest on times
        facts = [fact for fact in facts if fact.kind != "usable_steps"]
    caveats = [fact for fact in facts if fact.is_about_capture]
    facts = [fact for fact in facts if not fact.is_about_capture and not spoilt & {*fact.ranks, *fact.named}]
    if DIFFERENT_JOBS in has:
        facts = [fact for fact in facts if not _compares(fact)]
    if SHIFTED in has:
        facts = [fact for fact in facts if not (fact.steps and fact.ranks)]
    if any(caveat.severity == HIGH for caveat in caveats):
        return [*caveats, *(replace(fact, changes=()) for fact in facts)]
    doubts = [caveat for caveat in caveats if caveat.severity == MEDIUM]
    bound = f"Upper bound: {doubts[0].headline}" if doubts else ""
    return [*caveats, *(replace(fact, caveat=fact.caveat or bound) if fact.changes else fact for fact in facts)]


def spoilt_ranks(integrity: Result) -> set[int]:
    """Ranks whose files are cut or hold impossible times: nothing is concluded of them."""
    table = integrity.to_frame()
    return {*untrue_ranks(table), *table.loc[table["check"] == TRUNCATED, "rank"].dropna().astype(int)}


def _compares(fact: Finding) -> bool:
    """Whether it rests on what other ranks do."""
    return bool(fact.ranks) or any(change.to in (PEERS, EVEN, USUAL) for change in fact.changes)
