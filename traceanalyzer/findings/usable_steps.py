"""Usable steps: which recorded steps stand for the run.

Which recorded steps the figures use, and why others are left out: a step without an end, a warm-up step, a step that
a rank began late.

**Fix.** Record two or more steps after warm-up: `schedule(wait=5, warmup=2, active=3)` with `profiler.step()` in
every step.
"""

from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.integrity.checks import LOST_AMID, TRUNCATED
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import HIGH, LOW, MEDIUM, first_upper, numbered

PLACE = "The capture", 2

_AGAIN = "torch.profiler.schedule(wait=1, warmup=3, active=5)"


def usable_steps(
    run: Run, steps: Steps, iterations: Iterations, step_needs: StepNeeds, clocks: Clocks, integrity: Integrity
) -> Iterator[Finding]:
    """Recorded steps do not stand for the run: none is complete, the first is a warm-up, or a clock is set in one.

    A warm-up takes longer on most ranks than any later step, waits aside. A first step is begun late where ranks wait
    for others that need no longer in it than later. Nothing is concluded where a warm-up is the only complete step.
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
    is_first = lengths.index[0] == step_needs.table["step"].min()
    warm_up = _warm_up(table, lengths - waited, run)
    if warm_up:
        yield warm_up
    elif is_first:
        yield from _late_start(table, lengths, waited, clocks, run)


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


def _warm_up(table: pd.DataFrame, own: pd.DataFrame, run: Run) -> Finding | None:
    """The first steps take longer on most ranks than any later one, or the only one is mostly one API call."""
    steps = [int(step) for step in own.index]
    if len(steps) == 1:
        calls_ns = table["longest_call_ns"].astype("float64")
        if not (calls_ns >= SHARE * table["length_ns"]).all():
            return None
        return Finding(
            headline=f"Step {steps[0]} is a warm-up and the only complete step.",
            why=f"One API call takes {time_text(calls_ns.median())} of it.",
            fix=f"Record after warm-up: {_AGAIN}.",
            steps=(steps[0],),
            is_about_capture=True,
            severity=HIGH,
            table="steps",
        )
    count = max((few for few in range(1, len(own) // 2 + 1) if _is_longer(own, few)), default=0)
    first_ns, later_ns = own.iloc[:count].median().median(), own.iloc[count:].median().median()
    if not count or not run.is_worth((first_ns - later_ns) * count / len(own)):
        return None
    few = steps[:count]
    return Finding(
        headline=f"{first_upper(numbered('step', few))} {'is a' if count == 1 else 'are'} warm-up.",
        why=f"Without waiting it takes {time_text(first_ns)}; later steps {time_text(later_ns)}.",
        fix=f"Record after warm-up: {_AGAIN}, or leave {'it' if count == 1 else 'them'} out: --steps {few[-1] + 1}:.",
        steps=tuple(few),
        is_about_capture=True,
        severity=MEDIUM if later_ns < SHARE * first_ns else LOW,
        table="steps",
    )


def _is_longer(own: pd.DataFrame, few: int) -> bool:
    """Whether each of the first few steps is longer than any later one on most ranks, and on none is shorter."""
    times = own.iloc[:few].min() / own.iloc[few:].max()
    return bool((times >= RATIO).mean() > SHARE)


def _late_start(
    table: pd.DataFrame, lengths: pd.DataFrame, waited: pd.DataFrame, clocks: Clocks, run: Run
) -> Iterator[Finding]:
    """Ranks wait longer in the first step, for others that begin it later and need no longer for it than usual."""
    if len(lengths) < 2 or lengths.shape[1] < 2:
        return
    own = lengths - waited
    more_ns, longer_ns = (wide.iloc[0] - wide.iloc[1:].median() for wide in (waited, own))
    waiting, most_ns = int(more_ns.idxmax()), float(more_ns.max())
    step = int(lengths.index[0])
    begins = table[table["step"] == step].set_index("rank")["begin_ns"].astype("float64")
    offsets = clocks.offsets_ns()
    begins = begins - [offsets.get(int(rank), 0) for rank in begins.index]
    by_ns = begins.reindex(more_ns.index) - begins[waiting]
    # Whose own part of the step is longer is a straggler in it; a pipeline fills without anybody being late.
    is_late = (more_ns < (1 - SHARE) * most_ns) & (by_ns >= SHARE * most_ns) & (longer_ns < (1 - SHARE) * by_ns)
    late = [int(rank) for rank in more_ns.index[is_late]]
    beyond_later = most_ns >= (RATIO - 1) * lengths.iloc[1:].max().max()
    if not late or not beyond_later or not run.is_worth(most_ns / len(lengths)):
        return
    yield Finding(
        headline=f"{first_upper(numbered('rank', late))} begin{'s' if len(late) == 1 else ''} the first step late.",
        why=f"Rank {waiting} waits {time_text(most_ns)} longer in it than in later steps.",
        fix=f"Leave it out: --steps {step + 1}:; start the profiler one step earlier to record what comes before.",
        named=(*late, waiting),
        steps=(step,),
        is_about_capture=True,
        severity=MEDIUM if most_ns >= SHARE * lengths.iloc[1:].median().median() else LOW,
        table="step_needs",
    )
