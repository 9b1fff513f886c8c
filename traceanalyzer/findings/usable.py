"""What may still be concluded of a capture that lacks something."""

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.integrity import DIFFERENT_JOBS, untrue_ranks
from traceanalyzer.analyses.integrity.checks import LOST_AMID, SHIFTED, TRUNCATED
from traceanalyzer.analyses.replay.changes import EVEN, PEERS, USUAL
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.vocabulary import HIGH, MEDIUM


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
