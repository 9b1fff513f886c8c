"""Uneven work: ranks that get more of it than the others.

Ranks compute for different times, another one longest from step to step, and wait for each other in collectives.

**Why.** Sequence lengths, images of different size, or shards of an optimizer differ between ranks. Nobody is slow.

**Fix.** Batch by length across ranks (a length-grouped or token-balanced sampler), pack sequences, pad to buckets;
deal optimizer shards or embedding tables by size.

**Measured.** Domains of 400 and 640 rows made 512 and 512: 20.6 → 16.6 ms/step. Lookup tables dealt 24 and 4, then 14
and 14: 21.8 → 14.3 ms/step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes, Stragglers
from traceanalyzer.analyses.blame.step_budget import KERNEL, StepNeeds, WhatRan
from traceanalyzer.analyses.breakdown import Headline
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.analyses.statistics import PERCENT, RATIO, SHARE, SIGMAS, median_of_others
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, time_text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import COMPUTE, IDLE_CAUSES, numbered

PLACE = "Uneven ranks", 2

_FIX = "Give each rank as much per step: batches by tokens rather than samples, packed sequences, balanced experts."

_EVEN = Change("compute", EVEN)


def uneven_work(
    run: Run,
    headline: Headline,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    episodes: Episodes,
    stragglers: Stragglers,
    pipeline: Pipeline,
) -> Iterator[Finding]:
    """Ranks compute more or larger kernels than others, all the time or in turns.

    The change deals compute out evenly between one collective and the next; of work that only some ranks do it takes
    what these do more away.
    """
    work = _Work.of(step_needs, what_ran)
    if work.compute.empty:
        return
    yield from _without_work(work)
    if work.compute.shape[1] < 2 or len(pipeline):
        return
    if not headline.to_frame()["comm_ns"].fillna(0).any():
        yield from _slower_alone(work, run)
    elif work.is_more_of_it():
        yield _between_ranks(work, run)
    elif not len(episodes) and run.is_worth(SHARE * run.saved_ns(_EVEN)):
        yield from _within_steps(step_needs, stragglers, run)


@dataclass(frozen=True)
class _Work:
    """Compute by step (rows) and rank (columns) in ns, of whole steps.

    Attributes:
        compute: in which any kernel runs.
        alike: kernels that every rank runs as often and as large.
        other: all other kernels.
    """

    compute: pd.DataFrame
    alike: pd.DataFrame
    other: pd.DataFrame

    @classmethod
    def of(cls, step_needs: StepNeeds, what_ran: WhatRan) -> "_Work":
        held = step_needs.table
        held = held[held["step"].notna() & ~is_true(held["is_partial"])]
        if held.empty:
            return cls(*3 * [pd.DataFrame()])
        compute = by_step_and_rank(held.astype({"step": "int64"}), COMPUTE.column).dropna()
        named = what_ran.table
        named = named[(named["part"] == COMPUTE.column) & named["step"].isin(compute.index)]
        kernels = named[named["what"] == KERNEL]
        of_name = kernels.groupby(["step", "name"])
        is_alike = of_name["rank"].transform("size") == compute.shape[1]
        for amount in ("calls", "work"):
            is_alike &= of_name[amount].transform("min") == of_name[amount].transform("max")
        alike, other = (
            kernels[mask].pivot_table(index="step", columns="rank", values="total_ns", aggfunc="sum")
            .reindex(index=compute.index, columns=compute.columns).fillna(0.0)
            for mask in (is_alike, ~is_alike)
        )  # fmt: skip
        return cls(compute, alike, other)

    def is_more_of_it(self) -> bool:
        """Whether other work makes most of what each step's longest rank computes beyond the others.

        And more than the ranks' times for the same work differ by.
        """
        longest = self.compute.to_numpy().argmax(axis=1)[:, None]
        beyond, more = (
            float(np.take_along_axis(_beyond_others(wide), longest, 1).mean()) for wide in (self.compute, self.other)
        )
        mean = self.alike.mean(axis=1)
        of_mean = self.alike[mean > 0].div(mean[mean > 0], axis=0).to_numpy()
        jitter_ns = float(of_mean.std() * self.other.to_numpy().mean()) if of_mean.size else 0.0
        return more >= max(SHARE * beyond, SIGMAS * jitter_ns) > 0


def _beyond_others(wide: pd.DataFrame) -> np.ndarray:
    values = wide.to_numpy(dtype=np.float64)
    beyond: np.ndarray = values - median_of_others(values.T).T
    return beyond


def _between_ranks(work: _Work, run: Run) -> Finding:
    mean = work.compute.mean().sort_values()
    gap = int((mean.iloc[1:].to_numpy() / mean.iloc[:-1].clip(lower=1).to_numpy()).argmax()) + 1
    most, rest = (sorted(map(int, ranks)) for ranks in (mean.index[gap:], mean.index[:gap]))
    is_always = bool((work.compute[most].min(axis=1) > work.compute[rest].max(axis=1)).all())
    change = _EVEN
    if is_always and not run.is_worth(run.saved_ns(_EVEN)):  # work that only ranks of that role do
        change = Change("compute", float(mean[rest].median() / mean[most].max()), frozenset(most))
    longest, shortest = work.compute.max(axis=1).mean(), work.compute.min(axis=1).mean()
    least = int(mean.index[0])
    if is_always:
        times = digits(mean.iloc[-1] / max(mean.iloc[0], 1))
        headline = f"{run.who(most)} compute{'s' if len(most) == 1 else ''} {times}× as long as rank {least}"
    else:
        headline = "a different rank computes longest from step to step"
    return Finding(
        headline=f"Uneven work: {headline}.",
        why=f"In a step compute takes {time_text(shortest)} to {time_text(longest)}, by more or larger kernels.",
        fix=_FIX,
        changes=(change,),
        named=(*most, least) if is_always else (),
        evidence=_by_step(work.compute),
        table="step_needs",
        caveat="Ranks with a role of their own may have that much to do by design." if change is not _EVEN else "",
    )


def _by_step(compute: pd.DataFrame) -> tuple[dict[str, int], ...]:
    return tuple(
        {"step": int(step), "longest_rank": int(own.idxmax()), "longest_ns": int(own.max()), "least_ns": int(own.min())}
        for step, own in compute.iterrows()
    )


def _within_steps(step_needs: StepNeeds, stragglers: Stragglers, run: Run) -> Iterator[Finding]:
    """No rank is waited for most of the time, but one that waits for the others itself; and GPUs hardly idle."""
    idle = [cause.column for cause in IDLE_CAUSES]
    needs = run.per_step(step_needs.table, ["exposed_wait_ns", COMPUTE.column, *idle])
    waits, table = needs["exposed_wait_ns"].fillna(0), stragglers.table
    if table.empty or needs[idle].sum(axis=1).mean() > waits.mean():
        return
    first = table.loc[table["total_wait_ns"].idxmax()]
    is_one = first["total_wait_ns"] >= SHARE * table["total_wait_ns"].sum()
    if is_one and waits.get(first["rank"], 0.0) < SHARE * waits.mean():
        return
    yield Finding(
        headline="Uneven work within a step: ranks take turns at coming last.",
        why=f"Ranks wait {time_text(waits.mean())}{run.each} in {collective_words(first['collective'])}, though each "
        f"computes about {time_text(needs[COMPUTE.column].mean())}{run.each}.",
        fix="Even out the work between one collective and the next: layers, micro-batches, tokens per expert.",
        changes=(_EVEN,),
        half_of="this unevenness",
        table="stragglers",
    )


def _without_work(work: _Work) -> Iterator[Finding]:
    """Ranks that compute next to nothing, in all steps or from some step on, while most do; no change."""
    usual = work.compute.median(axis=1)
    is_idle = work.compute.lt(PERCENT / 100 * usual, axis=0)
    is_idle = is_idle[::-1].cummin()[::-1]
    ranks = [int(rank) for rank in is_idle if is_idle[rank].iloc[-1]]
    if not ranks:
        return
    first = int(is_idle[ranks].all(axis=1).idxmax())
    since = "" if first == work.compute.index[0] else f" from step {first} on"
    one = len(ranks) == 1
    yield Finding(
        headline=f"Uneven work: {numbered('rank', ranks)} compute{'s' if one else ''} nothing{since}.",
        why=f"The others compute {time_text(usual.loc[first:].mean())} per step.",
        fix="Check torch.cuda.set_device(LOCAL_RANK), and that each rank gets as many batches (drop_last=True).",
        named=tuple(ranks),
        table="step_needs",
    )  # fmt: skip


def _slower_alone(work: _Work, run: Run) -> Iterator[Finding]:
    """Ranks that exchange nothing: on one the same kernels take longer in each step; nobody waits, so no change."""
    others = pd.DataFrame(median_of_others(work.alike.to_numpy().T).T, work.alike.index, work.alike.columns)
    ratio = (work.alike / others.where(others > 0)).min()
    for rank in ratio.index[ratio >= RATIO]:
        yield Finding(
            headline=f"Slower GPU: rank {rank} runs the same kernels {digits(ratio[rank])}× slower than others.",
            why="In every step the same kernels take longer, and no communication is recorded.",
            fix=f"The work is the same: check clocks, power and temperature ({run.terms.health_command}).",
            named=(int(rank),),
            table="what_ran",
        )
