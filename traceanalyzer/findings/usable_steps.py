"""Usable steps: which recorded steps stand for the run.

Which recorded steps the figures use, and why others are left out: a step without an end, a warm-up step.

**Fix.** Record two or more steps after warm-up: `schedule(wait=5, warmup=2, active=3)` with `profiler.step()` in
every step.
"""

from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.breakdown import Steps
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.integrity import Integrity
from traceanalyzer.analyses.integrity.checks import LOST_AMID, TRUNCATED
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import LOW, MEDIUM, first_upper, numbered

PLACE = "The capture", 2

_AGAIN = "torch.profiler.schedule(wait=1, warmup=3, active=5)"


def usable_steps(
    run: Run, steps: Steps, iterations: Iterations, step_needs: StepNeeds, integrity: Integrity
) -> Iterator[Finding]:
    """Recorded steps do not stand for the run: none is complete, the first is a warm-up, or a clock is set in one.

    A warm-up takes longer on most ranks than any later step, waits aside.
    """
    if run.steps is None:
        yield from _no_complete_step(run, steps, iterations, integrity)
        return
    needs = step_needs.table[step_needs.table["step"].isin(run.steps)]
    if needs.empty:
        return
    for jump in needs[needs["clock_jump_ns"].notna()].itertuples():
        yield _clock_step(int(jump.rank), int(jump.step), float(jump.clock_jump_ns))
    waits = needs["exposed_wait_ns"] + needs["exposed_unmatched_ns"]
    table = needs.assign(length_ns=needs["end_ns"] - needs["begin_ns"], wait_ns=waits.astype("float64"))
    lengths, waited = (by_step_and_rank(table, name).astype("float64") for name in ("length_ns", "wait_ns"))
    yield from _warm_up(lengths - waited, run)


def _no_complete_step(run: Run, steps: Steps, iterations: Iterations, integrity: Integrity) -> Iterator[Finding]:
    """Steps that are marked, but none is complete; a file that is cut or lost events says so itself."""
    numbers = steps.table["step"].dropna().unique() if len(steps) else ()
    explained = integrity.table["check"].isin([TRUNCATED, LOST_AMID]).any() if len(integrity) else False
    if not len(numbers) or len(iterations) or explained or is_true(steps.table["is_complete"]).any():
        return
    count = f"{len(numbers)} recorded step{'s are' if len(numbers) > 1 else ' is'}"
    yield Finding(
        headline="No complete step: figures cover the whole trace.",
        why=f"The {count} cut by the start or end of the recording.",
        fix=run.terms.choose(
            {
                "torch": f"Record more steps: {_AGAIN}, and call profiler.step() after each.",
                "native": "Record at least three whole steps, each in an NVTX range on every rank.",
            }
        ),
        evidence=({"check": "partial_steps"},),
        is_about_capture=True,
        severity=MEDIUM,
        table="steps",
    )


def _clock_step(rank: int, step: int, jump_ns: float) -> Finding:
    return Finding(
        headline=f"Rank {rank}'s clock jumps by {time_text(abs(jump_ns))} in step {step}.",
        why="No other rank's step is longer, and no rank waits.",
        fix="Leave the step out (--steps); record without a time service that sets the host's clock.",
        named=(rank,),
        steps=(step,),
        is_about_capture=True,
        severity=MEDIUM,
        table="step_needs",
    )


def _warm_up(own: pd.DataFrame, run: Run) -> Iterator[Finding]:
    """The first steps take longer on most ranks than any later one."""
    count = max((few for few in range(1, len(own) // 2 + 1) if _is_longer(own, few)), default=0)
    first_ns, later_ns = own.iloc[:count].median().median(), own.iloc[count:].median().median()
    if not count or not run.is_worth((first_ns - later_ns) * count / len(own)):
        return
    few = [int(step) for step in own.index[:count]]
    yield Finding(
        headline=f"{first_upper(numbered('step', few))} {'is a' if count == 1 else 'are'} warm-up: leave "
        f"{'it' if count == 1 else 'them'} out (--steps {few[-1] + 1}:).",
        why=f"Without waiting it takes {time_text(first_ns)}; later steps {time_text(later_ns)}.",
        fix=f"Record after warm-up: {_AGAIN}.",
        steps=tuple(few),
        is_about_capture=True,
        severity=MEDIUM if later_ns < SHARE * first_ns else LOW,
        table="steps",
    )


def _is_longer(own: pd.DataFrame, few: int) -> bool:
    """Whether each of the first few steps is longer than any later one on most ranks, and on none is shorter."""
    times = own.iloc[:few].min() / own.iloc[few:].max()
    return bool((times >= RATIO).mean() > SHARE)
