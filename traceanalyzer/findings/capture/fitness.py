"""Whether a capture is fit for advice: what it cannot tell, and how to record it again."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.rank_sets import listed
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.integrity.different_jobs import DIFFERENT_JOBS
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, Integrity
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.capture.spoilt import LOST
from traceanalyzer.findings.capture.unmatched import PARTNERS
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_span, time_text

if TYPE_CHECKING:
    from traceanalyzer.analyses.names import CallsColumn

LEAST_WAIT_PCT = 5.0
"""Of a step, that all ranks wait for somebody who is not here."""

_ALIKE = 0.5


def missing_straggler(
    headline: Headline, steps: Steps, calls: Calls, ranks: Ranks, integrity: Integrity
) -> list[Finding]:
    """Every rank that is here waits alike in groups of which a rank has no trace: over 5 % of a step.

    Not in messages between stages: these wait in a pipeline's bubble, too.
    """
    if not len(headline) or not len(calls):
        return []
    cut = ranks.cut_off
    here = set(ranks.table["rank"]) - cut
    frame = calls.to_frame()
    frame = frame[frame["group_ranks"].notna() & frame["rank"].isin(here)]
    frame = frame[~frame["collective"].isin(POINT_TO_POINT)]
    members = {text: {*numbers(text)} for text in frame["group_ranks"].astype("str").unique()}
    lacking = {text: own - here for text, own in members.items() if own - here and own & here}
    if not any(len(members[text] & here) > 1 for text in lacking):
        return []
    frame = frame[frame["group_ranks"].astype("str").isin(lacking)]
    basis = Basis.of(headline, steps)
    held = basis.within(frame)
    if held.empty:
        return []
    beyond = _beyond_shortest_ns(frame).reindex(held.index).groupby(held["rank"]).sum() / basis.per
    step_ns = float(basis.window_ns.mean()) / basis.per
    if len(beyond) < 2 or 100 * beyond.min() < LEAST_WAIT_PCT * step_ns or beyond.min() < _ALIKE * beyond.max():
        return []
    missing = sorted(set().union(*lacking.values()))
    name = collectives_words(held["collective"].mode().iloc[0])
    are_left_out = len(integrity) > 0 and bool((integrity.table["check"] == LEFT_OUT).any())
    who, add = _why_not_here(missing, are_cut=cut >= {*missing}, are_left_out=are_left_out)
    return [
        Finding(
            severity="high",
            title=f"The {len(beyond)} ranks here wait alike for a rank that is not here ({who}): their {name} take "
            f"{time_span(beyond.min(), beyond.max())} longer than the shortest of their kind "
            f"{'in the capture' if basis.steps is None else 'in a step'}.",
            evidence=tuple({"rank": int(rank), "beyond_shortest_ns": round(ns)} for rank, ns in beyond.items()),
            recommendation=f"{add}: the late one is among them ({listed(missing)}).",
            caveat="The shortest call of a kind stands for its transfer; links that are slow at times look the same.",
            is_about_capture=True,
            about=PARTNERS,
        )
    ]


def _beyond_shortest_ns(calls: pd.DataFrame) -> pd.Series:
    """How much longer each call takes than the shortest of its collective, size and group."""
    keys: list[CallsColumn] = ["collective", "size_bytes", "group_ranks"]
    duration = (calls["end_ns"] - calls["start_ns"]).astype("int64")
    return duration - duration.groupby([calls[key] for key in keys], dropna=False, observed=True).transform("min")


def _why_not_here(missing: list[int], *, are_cut: bool, are_left_out: bool) -> tuple[str, str]:
    """Why these ranks are not here, and what to do about it."""
    many = len(missing) > 1
    if are_left_out:
        whom = f"{len(missing)} of their groups" if many else f"rank {missing[0]}"
        return f"--ranks leaves out {whom}", "Look at all ranks, or at these too"
    add = "Add the traces of the missing ranks, or record all ranks again"
    if are_cut:
        return "their files are cut off" if many else f"rank {missing[0]}'s file is cut off", add
    return f"{len(missing)} ranks have no trace" if many else f"rank {missing[0]} has no trace", add


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
    jumps = step_needs.table[step_needs.table["clock_jump_ns"].notna()] if len(step_needs) else step_needs.table
    return [_clock_step(int(row.rank), int(row.step), float(row.clock_jump_ns)) for row in jumps.itertuples()]


def _clock_step(rank: int, step: int, jump: float) -> Finding:
    return Finding(
        severity="high",
        title=f"Rank {rank}'s clock is set {'forward' if jump > 0 else 'back'} by {time_text(abs(jump))} in step "
        f"{step}: no other rank's step is as long, and nobody waits.",
        recommendation="Record again without a time service that sets clocks; leave that step out (--steps) till then.",
        caveat="Lengths across that moment on this rank are wrong, and calls around it may stay unmatched.",
        is_about_capture=True,
    )


def no_complete_step(headline: Headline, steps: Steps, iterations: Iterations) -> list[Finding]:
    """There are steps, but none that is complete on any rank, and no iterations of an inference engine."""
    if not len(headline) or not len(steps) or len(iterations) or headline.table["steps"].notna().any():
        return []
    numbered = steps.table[steps.table["step"].notna()]
    if numbered.empty or is_true(numbered["is_complete"]).any():
        return []
    return [
        Finding(
            severity="medium",
            title=f"No step is complete ({numbered['step'].nunique()} recorded): figures are of whole captures, with "
            "their beginnings and ends.",
            recommendation="Record at least three steps on every rank: torch.profiler.schedule(wait=1, warmup=2, "
            "active=3).",
            is_about_capture=True,
            part_of=LOST,
        )
    ]


def silent_rank(calls: Calls, ranks: Ranks) -> list[Finding]:
    """A rank of a group launches no collective while the group's others do; of a file that is cut off nobody knows."""
    frame = calls.to_frame()
    frame = frame[frame["group_ranks"].notna()] if len(frame) else frame
    if frame.empty:
        return []
    expected = set().union(*(numbers(text) for text in frame["group_ranks"].astype("str").unique()))
    silent = sorted((expected & set(ranks.table["rank"])) - ranks.cut_off - set(calls.table["rank"]))
    if not silent:
        return []
    one = len(silent) == 1
    return [
        Finding(
            severity="high",
            title=f"Rank{'' if one else 's'} {listed(silent)} launch{'es' if one else ''} no collective while the "
            "others of the group wait in theirs: a hang, or a capture of another time.",
            recommendation="Look at what this rank's host does at the end of its trace; TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "and the flight recorder say which collective it never joined.",
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
