"""Whether a capture is fit for advice: what it cannot tell, and how to record it again."""

import numpy as np

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.integrity.different_jobs import DIFFERENT_JOBS
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.integrity.integrity_checks import TRUNCATED, WITHOUT_LAUNCH
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.capture.spoilt import CUT_OFF, LOST, lost_on
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_calls import calls_of
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.model.tables import rows_where


def recorded_apart(integrity: Integrity) -> list[Finding]:
    """The ranks' captures share no time, and no rank answers another's calls: none can be held against another."""
    if not (len(integrity) and (integrity.table["check"] == DIFFERENT_JOBS).any()):
        return []
    return [
        Finding(
            severity="high",
            title="These ranks were not recorded together: their captures have no time in common, and no rank answers "
            "another's communication. Who waits for whom, and whose work is longer, cannot be told.",
            recommendation="Start and stop the profiler in the same steps on every rank (a schedule counts them), and "
            "put the traces of one job alone into the folder.",
            is_about_capture=True,
        )
    ]


def clock_step(step_needs: StepNeeds) -> list[Finding]:
    """One rank's step is longer or shorter than everybody else's by what no wait explains, and stays so.

    Of ranks that communicate: others may take as long as they like.
    """
    jumps = (
        rows_where(step_needs.table, step_needs.table["clock_jump_ns"].notna()) if len(step_needs) else step_needs.table
    )
    return [_clock_step(int(row.rank), int(row.step), float(row.clock_jump_ns)) for row in jumps.itertuples()]


def _clock_step(rank: int, step: int, jump: float) -> Finding:
    return Finding(
        severity="high",
        title=f"Rank {rank}'s clock is set {'forward' if jump > 0 else 'back'} by {time_text(abs(jump))} in step "
        f"{step}: no other rank's step is as long, and nobody waits.",
        recommendation="Record again without a time service that sets clocks; leave that step out (--steps) till then.",
        caveat="Lengths across that moment on this rank are wrong, and calls around it may stay unmatched.",
        named=(rank,),
        is_about_capture=True,
    )


def no_complete_step(
    headline: Headline, steps: Steps, iterations: Iterations, integrity: Integrity, ranks: Ranks
) -> list[Finding]:
    """There are steps, but none that is complete on any rank, and no iterations of an inference engine.

    Where files are cut off, or operations were lost, it is part of that. Steps that are many enough are not complete
    where nothing says which of them launched the operations.
    """
    if not len(headline) or not len(steps) or len(iterations) or headline.table["steps"].notna().any():
        return []
    numbered = steps.table[steps.table["step"].notna()]
    if numbered.empty or is_true(numbered["is_complete"]).any():
        return []
    checks = integrity.to_frame()
    unlaunched = checks[(checks["check"] == WITHOUT_LAUNCH) & (checks["count"] == checks["total"])]
    is_unlaunched = set(headline.to_frame()["rank"]) <= set(unlaunched["rank"])
    count = numbered["step"].nunique()
    why = ", and no operation says which call launched it" if is_unlaunched else ""
    hosts_too = calls_of(ranks, int(headline.table["rank"].iloc[0]))[1]
    return [
        Finding(
            severity="medium",
            title=f"No step is complete ({count} recorded{why}): figures are of whole captures, with their beginnings "
            "and ends.",
            recommendation=hosts_too if is_unlaunched else None,
            is_about_capture=True,
            part_of=CUT_OFF if (checks["check"] == TRUNCATED).any() else LOST,
        )
    ]


def silent_rank(calls: Calls, ranks: Ranks, integrity: Integrity) -> list[Finding]:
    """A rank of a group launches no collective while the group's others do.

    Of a file that is cut off nobody knows, nor of a rank of which operations were lost.
    """
    frame = calls.to_frame()
    frame = frame[frame["group_ranks"].notna()] if len(frame) else frame
    if frame.empty:
        return []
    expected = set().union(*(numbers(text) for text in frame["group_ranks"].astype("str").unique()))
    silent = sorted(
        (expected & set(ranks.table["rank"])) - ranks.cut_off - lost_on(integrity) - set(calls.table["rank"])
    )
    if not silent:
        return []
    one = len(silent) == 1
    return [
        Finding(
            severity="high",
            title=f"{first_upper(numbered('rank', silent))} launch{'es' if one else ''} no collective while the "
            "others of the group wait in theirs: a hang, or a capture of another time.",
            recommendation="Look at what this rank's host does at the end of its trace; TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "and the flight recorder say which collective it never joined.",
            named=tuple(silent),
            is_about_capture=True,
        )
    ]


def whole_graphs(integrity: Integrity) -> list[Finding]:
    """CUDA graphs are recorded as one operation each: what is in them is unknown."""
    frame = integrity.to_frame()
    own = frame[frame["check"] == "graphs_of_unknown_content"]
    if own.empty:
        return []
    count = int(np.max(own["count"]))
    return [
        Finding(
            severity="medium",
            title=f"{count:,} {'CUDA graph of a rank is' if count == 1 else 'CUDA graphs of a rank are'} recorded as a "
            "whole: communication, copies and kernels inside are unknown.",
            recommendation="Record again with nsys profile --cuda-graph-trace=node.",
            is_about_capture=True,
        )
    ]
