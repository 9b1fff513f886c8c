"""Whether the first step that was recorded is a warm-up, of which means tell nothing."""

from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

WARM_UP = 3.0
"""A first step of this many times the later ones is a warm-up; so is one of which one API call takes this share."""

BEYOND_ANY = 1.5
"""A warm-up takes this many times as long as any later step: steps that are long now and then are none."""

_ONE_CALL = 0.3
_LEAST_CALL_NS = 100_000_000

_AGAIN = "Record again with a schedule of some steps of warm-up: torch.profiler.schedule(wait=1, warmup=3, active=3)."


def warm_up(
    step_needs: StepNeeds,
    steps: Steps,
    *,
    warm_up_times: float = WARM_UP,
) -> list[Finding]:
    """The first complete step is three times as long as the later ones, or one API call takes a third of it.

    And it is half as long again as any later one: a loader that is slow at every second batch makes no warm-up.
    """
    if not len(step_needs):
        return []
    complete = complete_steps(steps.table)
    table = rows_where(
        step_needs.table, step_needs.table["step"].isin(complete["step"].unique() if len(complete) else [])
    )
    if table.empty:
        return []
    each = table.assign(ns=table["end_ns"] - table["begin_ns"])
    lengths = each.groupby("step")["ns"].median()
    first, later = int(lengths.index[0]), lengths.iloc[1:]
    calls_ns = table.loc[table["step"] == first, "longest_call_ns"].dropna()
    call_ns = int(calls_ns.quantile(interpolation="lower")) if len(calls_ns) else 0
    # All ranks warm up: where others wait for one of them, it is late.
    needed = table["end_ns"] - table["begin_ns"] - table["exposed_wait_ns"] - table["exposed_unmatched_ns"]
    own = needed.groupby(table["step"]).quantile(interpolation="lower")
    # Rank by rank: what one does after a step's last collective lengthens its own step and the others' next.
    wide = by_step_and_rank(each, "ns")
    is_beyond = wide.iloc[0] >= BEYOND_ANY * wide.iloc[1:].max()
    is_beyond_any = bool(is_beyond.mean() > 0.5) if len(later) else True
    is_long = len(later) > 0 and is_beyond_any and own.iloc[0] >= warm_up_times * own.iloc[1:].median()
    is_one_call = is_beyond_any and call_ns >= max(_LEAST_CALL_NS, _ONE_CALL * lengths.iloc[0])
    if not (is_long or is_one_call):
        return []
    beside = f", the later ones {time_text(later.median())}" if len(later) else " and is the only complete one"
    call = f"; one API call in it takes {time_text(call_ns)}" if is_one_call else ""
    return [
        Finding(
            severity="high",
            title=f"Step {first} is a warm-up: it takes {time_text(lengths.iloc[0])}{beside}{call}.",
            recommendation=_AGAIN if not len(later) else f"{_AGAIN} Till then leave it out: --steps {first + 1}:.",
            caveat="Means over steps hold it too.",
            is_about_capture=True,
            steps=(first,),
        )
    ]
