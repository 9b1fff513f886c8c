"""What the capture cannot tell, and how to record again."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.integrity import integrity as integrity_integrity
from traceanalyzer.analyses.integrity.checks import LOST_AMID, LOST_GRAPHS, TRUNCATED, WITHOUT_LAUNCH
from traceanalyzer.analyses.integrity.integrity import DIFFERENT_JOBS, LEFT_OUT, Integrity
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.phases.phases import EXPOSED_CALLS_PARTS, ExposedCalls
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, has_known_stages
from traceanalyzer.analyses.pipelines.shape import PipelineMessages
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import Basis, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.shares import calls_of
from traceanalyzer.findings.statistics import AS_LONG
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.columns import numbers, time_span, time_text
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.vocabulary import first_upper, listed, numbered, step_or_capture
from traceanalyzer.model.tables import only, rows_where

# Communication whose partners the capture does not hold: what part of a step cannot be told from waiting.


LEAST_PCT = 10.0
"""Of a step in exposed communication of unknown partners, from which on nobody can be acquitted."""

HIGH_PCT = 30.0
"""From here on the capture is to be recorded again before anything else is done."""

PARTNERS = "partners that are not known"
"""How findings about such communication call it."""


def unmatched_calls(
    headline: Headline,
    steps: Steps,
    call_waits: CallWaits,
    exposed_calls: Result,
    ranks: Ranks,
    calls: Result,
    integrity: Integrity,
    *,
    unmatched_pct: float = LEAST_PCT,
    grave_unmatched_pct: float = HIGH_PCT,
) -> list[Finding]:
    """Over 10 % of a step is exposed communication of calls of which no other rank's trace holds the other end.

    Whether such a call moves data or waits, and for whom, is not known: who is late may be missing among the findings.
    Of a group of which some ranks are here it is that of what follows once the last of these has come.
    """
    if not len(headline) or not len(call_waits) or not len(exposed_calls):
        return []
    basis = Basis.of(headline, steps)
    names = ["rank", "call", "is_matched", "instance", "collective"]
    held = basis.within(exposed_calls.to_frame()).merge(only(call_waits.table, names), on=["rank", "call"])
    is_open = ~is_true(held["is_matched"])
    lengths = held["unmatched_ns"].astype("float64").where(is_open, 0.0)
    each = lengths.groupby(held["rank"]).sum().reindex(headline.table["rank"], fill_value=0.0) / basis.per
    step_ns = basis.step_ns
    share = 100 * float(each.mean()) / step_ns if step_ns else 0.0
    if share < unmatched_pct:
        return []
    are_left_out = len(integrity) > 0 and bool((integrity.table["check"] == LEFT_OUT).any())
    is_of_some = 2 * lengths[held["instance"].notna()].sum() > lengths.sum()
    who, what, advice, named = _said(ranks, calls, call_waits.table, are_left_out=are_left_out, is_of_some=is_of_some)
    is_open_for = f"{time_text(float(each.mean()))} {basis.of_a_step}, {share:.0f} % of it"
    on_average = " on average" if len(ranks) > 1 else ""
    return [
        Finding(
            severity="high" if share >= grave_unmatched_pct else "medium",
            title=f"{who}: {is_open_for}{on_average}, is communication {what}.",
            evidence=plain(_by_collective(held[is_open], basis.per)),
            recommendation=advice,
            caveat="Who is late, and what there is to gain by it, is told of the other calls alone.",
            named=named,
            is_about_capture=share >= grave_unmatched_pct,
            table="call_waits",
            about=PARTNERS,
            part_of=PARTNERS,
        )
    ]


def _said(
    ranks: Ranks, calls: Result, waits: pd.DataFrame, *, are_left_out: bool, is_of_some: bool
) -> tuple[str, str, str, tuple[int, ...]]:
    """Which ranks are here, what of their communication is not known, what to do, and which ranks this names.

    Args:
        ranks: the Result.
        calls: the Result.
        waits: the table of `call_waits`.
        are_left_out: --ranks leaves out the others.
        is_of_some: most of the time is in calls that several of these ranks share.
    """
    here = sorted(int(rank) for rank in ranks.table["rank"])
    size, where = _size(ranks, calls), "looked at" if are_left_out else "here"
    count = int((~is_true(waits["is_matched"])).sum())
    who, advice = _alone(here, size, where) if len(here) == 1 else _several(here, size, where, count, waits)
    if are_left_out:
        advice = "Look at all ranks (without --ranks)."
    if not is_of_some:
        alone = tuple(here) if len(here) == 1 else ()
        return who, "of which it cannot be told whether it moves data or waits, nor for whom", advice, alone
    lacking = _absent(calls, here)
    cut = [] if lacking else sorted(ranks.cut_off)
    of = tuple(lacking or cut)
    absent, has = _named(of)
    left_out = f"--ranks leaves {absent} out"
    why = left_out if are_left_out else f"{absent} {has} {'a file that is cut off' if cut else 'no file'}"
    who = f"{len(here) - len(cut)} of {size} ranks are {where}{' whole' if cut else ''}, {why}"
    what = f"after the last of them has come: it moves data, or waits for {absent}, how late is not known"
    return who, what, advice, of


def _size(ranks: Ranks, calls: Result) -> int | None:
    """How many ranks the job has, as far as the traces say: the world's, else the largest group's."""
    world = ranks.to_frame()["world_size"].dropna() if "world_size" in ranks.to_frame() else pd.Series(dtype="Int64")
    sizes = [*world, *(calls.to_frame()["group_size"].dropna() if len(calls) else ())]
    return int(max(sizes)) if sizes else None


def _absent(calls: Result, here: list[int]) -> list[int]:
    """The ranks of the groups that communicate of which there is no trace."""
    lists = (numbers(text) for text in calls.to_frame()["group_ranks"].dropna().unique())
    return sorted({rank for ranks in lists for rank in ranks} - {*here})


def _named(ranks: Sequence[int]) -> tuple[str, str]:
    return numbered("rank", ranks), "has" if len(ranks) == 1 else "have"


def _alone(here: list[int], size: int | None, where: str) -> tuple[str, str]:
    of = f" of {size}" if size and size > 1 else ""
    advice = (
        "Put the traces of all ranks, of the same steps, into one folder: then waits are told from transfers, and the "
        "rank that is late from those that wait for it."
    )
    return f"Rank {here[0]}{of} is {where} alone", advice


def _several(here: list[int], size: int | None, where: str, count: int, every: pd.DataFrame) -> tuple[str, str]:
    share = f"{count:,} of {len(every):,} communication calls have no partner in the other ranks' traces"
    if size and size > len(here):
        who = f"{len(here)} of {size} ranks are {where} ({listed(here)}), and {share}"
        return who, "Put the traces of all ranks, of the same steps, into one folder."
    whys = every.loc[every["why_not_split"].notna(), "why_not_split"].astype("object")
    most = f" ({whys.mode().iloc[0]})" if len(whys) else ""
    advice = (
        "Record the same steps on every rank, with a larger buffer where events were lost; let Nsight Systems record "
        "NCCL's payloads, or the PyTorch profiler the calls' arguments, so that groups have names."
    )
    return f"{share}{most}", advice


def _by_collective(held: pd.DataFrame, per: float) -> pd.DataFrame:
    lengths = held["unmatched_ns"].astype("float64")
    sums = lengths.groupby([held["rank"], held["collective"].astype("object").fillna("unknown")]).sum() / per
    table = sums.rename("unknown_ns").round().astype("int64").reset_index()
    return table.sort_values("unknown_ns", ascending=False, kind="stable").head(8)


# A rule about ranks without a trace for which all others wait.


LEAST_WAIT_PCT = 5.0
"""Of a step, that all ranks wait for somebody who is not here."""

_MORE = 2
"""Times what others wait for a rank that is here, by the median: as one of many that each come last at times."""

_OF_LINKS = 2
"""Times the shortest call of a kind: what is no longer may be the links' doing."""


def missing_straggler(
    headline: Headline, steps: Steps, calls: Calls, call_waits: CallWaits, exposed_calls: ExposedCalls,
    ranks: Ranks, integrity: Integrity, *, absent_wait_pct: float = LEAST_WAIT_PCT,
) -> list[Finding]:  # fmt: skip
    """Every rank here waits alike in groups of which a rank has no trace: over 5 % of a step, beside no compute.

    Not in messages between stages: these wait in a pipeline's bubble, too. Nor where ranks that are here keep the
    others waiting as long as those that are not: one of many, of which each comes last at times.
    """
    if not len(headline) or not len(calls) or not len(exposed_calls):
        return []
    here = set(ranks.table["rank"]) - ranks.cut_off
    lacking = _lacking(calls, here)
    if not lacking:
        return []
    basis = Basis.of(headline, steps)
    held = basis.within(_waits(calls, call_waits, exposed_calls, [*lacking], here))
    missing = sorted(set().union(*lacking.values()))
    each = held.groupby("rank")[["absent_ns", "exposed_ns", "alone_ns"]].sum()
    if held.empty or each["absent_ns"].min() <= _MORE * len(missing) * each["alone_ns"].median():
        return []
    beyond = each["exposed_ns"] / basis.per
    step_ns = basis.step_ns
    if len(beyond) < 2 or 100 * beyond.min() < absent_wait_pct * step_ns or beyond.min() < AS_LONG * beyond.max():
        return []
    are_left_out = len(integrity) > 0 and bool((integrity.table["check"] == LEFT_OUT).any())
    who, add = _why_not_here(missing, are_cut=ranks.cut_off >= {*missing}, are_left_out=are_left_out)
    of_them = calls.to_frame()
    of_them = of_them[of_them["group_ranks"].astype("str").isin(lacking)]
    awaited = of_them.loc[~of_them["collective"].isin(POINT_TO_POINT), "collective"]
    return [
        Finding(
            severity="high",
            title=f"The {len(beyond)} ranks here wait alike for a rank that is not here ({who}): their "
            f"{collectives_words(awaited.mode().iloc[0])} take {time_span(beyond.min(), beyond.max())} longer than the "
            f"shortest of their kind in {step_or_capture(basis.steps)}, and nothing computes.",
            evidence=tuple({"rank": int(rank), "beyond_shortest_ns": round(ns)} for rank, ns in beyond.items()),
            recommendation=f"{add}: the late one is among them ({listed(missing)}).",
            caveat="The shortest call of a kind stands for its transfer, and only calls are counted that take twice as "
            "long; links that are slow at times look the same.",
            named=tuple(missing) if len(missing) == 1 else (),
            is_about_capture=True,
            about=PARTNERS,
        )
    ]


def _lacking(calls: Calls, here: set[int]) -> dict[str, set[int]]:
    """Groups of which at least two ranks are here and others are not, and these others."""
    texts = calls.table["group_ranks"].dropna().astype("str").unique()
    members = {text: {*numbers(text)} for text in texts}
    lacking = {text: own - here for text, own in members.items() if own - here and own & here}
    return lacking if any(len(members[text] & here) > 1 for text in lacking) else {}


def _waits(
    calls: Calls, call_waits: CallWaits, exposed_calls: ExposedCalls, groups: Sequence[str], here: set[int]
) -> pd.DataFrame:
    """What each rank waits in each step (`step` -1: of none) in collectives of these groups.

    `absent_ns`: for ranks that are not here: in calls, from when the last rank here had come, by how much they take
    longer than the shortest one of their kind where that is more than links explain, and in waits for a rank here that
    waited so itself. `exposed_ns`: as much of it as no compute can have hidden. `alone_ns`: by how much the rank came
    later than all others here by its own doing.
    """
    keys: list[str] = ["collective", "size_bytes", "group_ranks"]
    own = calls.to_frame()[["rank", "call", "step", *keys]]
    own = own[own["rank"].isin(here) & own["group_ranks"].astype("str").isin(groups)]
    own = own[~own["collective"].isin(POINT_TO_POINT)]
    waits = call_waits.table[["rank", "call", "start_ns", "end_ns", "group", "instance", "wait_ns", "waits_for"]]
    met = own.merge(waits, on=["rank", "call"])
    met = met.assign(step=met["step"].astype("Int64").fillna(-1), wait_ns=met["wait_ns"].astype("Int64").fillna(0))
    least = (met["end_ns"] - met["start_ns"] - met["wait_ns"]).astype("int64")
    shortest = least.groupby([met[key] for key in keys], dropna=False, observed=True).transform("min")
    met = met.assign(beyond_ns=(least - shortest).where(least > _OF_LINKS * shortest, 0), alone_ns=_alone_ns(met))
    direct = met.groupby(["rank", "step"])["beyond_ns"].sum()
    of_awaited = direct.reindex(pd.MultiIndex.from_frame(met[["waits_for", "step"]]), fill_value=0).to_numpy()
    passed = np.minimum(met["wait_ns"].astype("int64"), of_awaited)
    met = met.assign(absent_ns=met["beyond_ns"] + passed)
    found = met.groupby(["rank", "step"])[["absent_ns", "alone_ns"]].sum()
    stretches = exposed_calls.table.merge(met[["rank", "call", "step"]], on=["rank", "call"], suffixes=("_lain", ""))
    lengths = (stretches["end_ns"] - stretches["start_ns"]).astype("int64")
    exposed = lengths.groupby([stretches["rank"], stretches["step"]]).sum().reindex(found.index, fill_value=0)
    return found.assign(
        exposed_ns=np.minimum(found["absent_ns"], exposed), alone_ns=(found["alone_ns"] - direct).clip(lower=0)
    ).reset_index()


def _alone_ns(met: pd.DataFrame) -> pd.Series:
    """How long the others of an instance wait for its last rank alone, on that rank's row; else 0."""
    known = met[met["instance"].notna()].sort_values(["group", "instance", "wait_ns"], kind="stable")
    of_instance = known.groupby(["group", "instance"], dropna=False, observed=True)["wait_ns"]
    following = of_instance.shift(-1).where(of_instance.cumcount() == 0)
    return following.reindex(met.index).fillna(0).astype("int64")


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


# A stage of a pipeline that has no trace and for whose messages its neighbours wait longer than for its replicas'.


_STEADY = 0.5
"""Of its mean: what a stage is waited for longer in every step."""


_MOST = 2.0
"""Times what a rank spends longer on messages, at most, that one next to the late rank does."""

_WHOLE = -1
"""Stands for a capture without steps."""


class _Waited(Struct, frozen=True):
    """What a rank spends on messages with one that is not here: in each step by how much longer than a replica."""

    rank: int
    waits_for: int
    longer_ns: pd.Series
    waited_ns: float
    beside: int
    its_peer: int
    beside_ns: float


def absent_stage(
    headline: Headline,
    steps: Steps,
    pipeline: Pipeline,
    pipeline_messages: PipelineMessages,
    exposed_calls: ExposedCalls,
    ranks: Ranks,
    integrity: Integrity,
    episodes: Episodes,
    *,
    absent_wait_pct: float = LEAST_WAIT_PCT,
) -> list[Finding]:
    """A stage without a whole trace is waited for over 5 % of a step longer than the same stage of other pipelines.

    That is what a rank next to it spends on messages with it, beside the median of the ranks at the same stage; what a
    bubble takes, it takes there as well. All ranks of the pipeline that are here spend longer on messages, and none of
    them is late itself, or the late one may be among them. Nor is it told beside a rank that is known to be late by as
    much: ranks that wait for that one in collectives do so here in one call, there in another. Without another
    pipeline a wait is not told from the bubble.
    """
    if not len(headline) or not len(pipeline):
        return []
    cut = ranks.cut_off
    stages = _stages(pipeline.table[has_known_stages(pipeline.table)])
    stages["is_here"] &= ~stages.index.isin(cut)
    if stages["is_here"].all():
        return []
    basis = Basis.of(headline, steps)
    least_ns = absent_wait_pct / 100 * basis.step_ns
    exchanged = _exchanged(pipeline_messages.table, exposed_calls.table, basis, stages)
    # Who is late spends less on messages: beside it anybody would seem to wait.
    late = {rank for text in episodes.table["ranks"] for rank in numbers(text)}
    known_ns = max(episodes.table["excess_ns"].astype("float64"), default=0.0)
    exchanged = exchanged[~exchanged.index.get_level_values("rank").isin(late)]
    longer = exchanged.groupby("rank").sum().mean(axis=1)
    stage = stages["stage"].reindex(longer.index)
    longer = pd.concat([_beyond_replicas(own) for _, own in longer.groupby(stage)]) if len(longer) else longer
    are_left_out = len(integrity) > 0 and bool((integrity.table["check"] == LEFT_OUT).any())
    found = []
    for _, own in stages.groupby("pipeline"):
        if late & {*own.index} or not _MOST * longer.reindex(own.index[own["is_here"]]).min() >= least_ns:
            continue
        absent = own.index[~own["is_here"]]
        waited = [each for rank in absent for each in _waited(rank, stages, exchanged)]
        waited = [each for each in waited if float(each.longer_ns.mean()) >= max(least_ns, known_ns)]
        if waited:
            found.append(_finding(waited, list(absent), stages, basis, cut, are_left_out=are_left_out))
    return found


def _stages(table: pd.DataFrame) -> pd.DataFrame:
    """`pipeline`, `stage` and `is_here` of every rank of the pipelines, with a trace or without."""
    rows = [(row.rank, row.pipeline, row.stage, True) for row in table.itertuples()]
    for number, own in table.groupby("pipeline"):
        names = numbers(own["absent_ranks"].iloc[0])
        free = sorted({*range(int(own["ranks"].iloc[0]))} - {*own["stage"]})
        rows += [(rank, number, stage, False) for rank, stage in zip(names, free, strict=True)]
    return pd.DataFrame(rows, columns=["rank", "pipeline", "stage", "is_here"]).astype({"rank": int}).set_index("rank")


def _exchanged(messages: pd.DataFrame, exposed: pd.DataFrame, basis: Basis, stages: pd.DataFrame) -> pd.DataFrame:
    """Exposed time of each rank's messages with each peer: a row for each pair, a column for each step."""
    here = stages.index[stages["is_here"]]
    pairs = messages.loc[messages["rank"].isin(here), ["rank", "call", "peer"]].drop_duplicates()
    pairs = pairs[pairs["peer"].isin(stages.index)]
    held = basis.within(exposed).merge(pairs, on=["rank", "call"])
    step = held["step"].astype("Int64") if basis.steps is not None else _WHOLE
    lengths = held.assign(step=step, ns=held[list(EXPOSED_CALLS_PARTS)].astype("float64").sum(axis=1))
    wide = lengths.pivot_table(index=["rank", "peer"], columns="step", values="ns", aggfunc="sum", fill_value=0.0)
    columns = list(basis.numbers) if basis.steps is not None else [_WHOLE]
    every = pd.MultiIndex.from_frame(pairs[["rank", "peer"]].drop_duplicates())
    return wide.reindex(index=every, columns=columns, fill_value=0.0)


def _beyond_replicas(spent_ns: pd.Series) -> pd.Series:
    """What each rank of a stage spends longer than the median of the stage's others; absent without others."""
    if len(spent_ns) < 2:
        return pd.Series(np.nan, index=spent_ns.index)
    own = spent_ns.to_numpy()[:, None]
    return pd.Series((own - median_of_others(own))[:, 0], index=spent_ns.index)


def _waited(absent: int, stages: pd.DataFrame, exchanged: pd.DataFrame) -> Iterator[_Waited]:
    """How long its neighbours of which there is a trace wait for it, beside the same two stages of other pipelines."""
    ranks, peers = (exchanged.index.get_level_values(name) for name in ("rank", "peer"))
    own, other = stages.loc[ranks], stages.loc[peers]
    for rank in ranks[peers == absent]:
        stage, pipeline = stages.loc[rank, ["stage", "pipeline"]]
        is_alike = (own["stage"].to_numpy() == stage) & (other["stage"].to_numpy() == stages.loc[absent, "stage"])
        is_alike &= own["pipeline"].to_numpy() != pipeline
        if not is_alike.any():
            continue
        alike, ns = exchanged[is_alike], exchanged.loc[(rank, absent)]
        middle = alike.median()
        beside, its_peer = (alike.mean(axis=1) - middle.mean()).abs().idxmin()
        yield _Waited(int(rank), absent, ns - middle, float(ns.mean()), int(beside), int(its_peer),
                      float(middle.mean()))  # fmt: skip


def _finding(
    waited: Sequence[_Waited],
    absent: Sequence[int],
    stages: pd.DataFrame,
    basis: Basis,
    cut: Collection[int],
    *,
    are_left_out: bool,
) -> Finding:
    most = max(waited, key=lambda own: own.longer_ns.mean())
    rank = most.waits_for
    why = "its file is cut off" if rank in cut else "--ranks leaves it out" if are_left_out else "it has no file"
    others = [other for other in absent if other != rank]
    whom = f"ranks {listed(sorted(absent))}" if others else f"rank {rank}"
    add = f"Look at {whom} too" if are_left_out else f"Add the whole traces of {whom}, or record all ranks again"
    behind = f" It may wait for {numbered('rank', others)}, not here either." if others else ""
    return Finding(
        severity="high",
        title=f"The others wait for rank {rank}, stage {stages.loc[rank, 'stage']} of its pipeline, that is not here "
        f"({why}): rank {most.rank} spends {time_text(most.waited_ns)} {_when(most.longer_ns, basis)} on messages "
        f"with it, rank {most.beside} at the same stage {time_text(most.beside_ns)} on those with rank "
        f"{most.its_peer}.{behind}",
        evidence=plain(pd.DataFrame([_row(own) for own in waited])),
        recommendation=f"{add}: what makes {'them' if others else 'it'} late is told there alone.",
        caveat="A slow link to it looks the same.",
        named=(rank, most.rank, most.beside, most.its_peer, *others),
        is_about_capture=True,
        table="pipeline",
        about=PARTNERS,
    )


def _when(longer_ns: pd.Series, basis: Basis) -> str:
    """`a step`, with those in which most of it happens where it is not in all of them."""
    if basis.steps is None:
        return "of the capture"
    held = longer_ns[longer_ns >= _STEADY * longer_ns.mean()]
    if len(held) == len(longer_ns):
        return "a step"
    return f"a step (most in step{'' if len(held) == 1 else 's'} {', '.join(map(str, held.index))})"


def _row(own: _Waited) -> Mapping[str, object]:
    return {"rank": own.rank, "waits_for": own.waits_for, "exposed_per_step_ns": round(own.waited_ns),
            "beside": own.beside, "its_peer": own.its_peer,
            "its_exposed_per_step_ns": round(own.beside_ns)}  # fmt: skip


# Communication of calls that are all alike: which of them are one collective, and who waits, cannot be told.


def ambiguous_calls(
    headline: Headline, steps: Steps, call_waits: CallWaits, exposed_calls: Result, *, unmatched_pct: float = LEAST_PCT
) -> list[Finding]:
    """Over 10 % of a capture without steps is exposed communication of calls that may be paired otherwise.

    They are alike and come at like distances, as in decoding without marked iterations: who is late is not told.
    """
    if not len(headline) or not len(call_waits) or not len(exposed_calls):
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is not None:
        return []
    calls = only(call_waits.table, ["rank", "call", "is_ambiguous"])
    held = basis.within(exposed_calls.to_frame()).merge(calls, on=["rank", "call"])
    open_ns = held["unmatched_ns"].astype("float64").where(is_true(held["is_ambiguous"]), 0.0)
    each = open_ns.groupby(held["rank"]).sum().reindex(headline.table["rank"], fill_value=0.0)
    whole_ns = float(basis.window_ns.mean())
    share = 100 * float(each.mean()) / whole_ns if whole_ns else 0.0
    if share < unmatched_pct:
        return []
    count, of = int(is_true(call_waits.table["is_ambiguous"]).sum()), len(call_waits.table)
    open_for = f"{time_text(float(each.mean()))} {basis.of_a_step}, {share:.0f} % of it on average"
    return [
        Finding(
            severity="low",
            title=f"{count:,} of {of:,} communication calls are alike and come at like distances: for {open_for}, it "
            "cannot be told whether they move data or wait, nor for whom.",
            evidence=plain(each.rename("unknown_ns").round().astype("int64").reset_index()),
            recommendation='Mark steps or iterations on every rank (the profiler\'s step(), record_function("step 7"), '
            "NVTX ranges; --step-range names such ranges): calls are then told by their order in a step.",
            table="call_waits",
        )
    ]


# Ranks of which nothing is concluded: their files lack operations, or tell times that cannot be.


LEAST_LOST_PCT = 1.0
"""Of a rank's launches that have no operation, amid others that have one."""

SPOILT_PCT = 5.0
"""From here on nothing is concluded of the rank."""

_AS_WRITTEN = "give each process's file as the profiler wrote it: not several merged into one"

LOST = "operations that were lost"
CUT_OFF = "files that are cut off"
"""How findings about them call these."""


def spoilt_ranks(headline: Headline, integrity: Integrity) -> set[int]:
    """Ranks of which nothing is concluded, for any of the reasons that the rules here give."""
    lost = _lost_in_all(headline, integrity, SPOILT_PCT)
    return (
        {*integrity_integrity.untrue_ranks(integrity.to_frame())} | set(_with(integrity, TRUNCATED)) | set(lost.index)
    )


def lost_operations(
    headline: Headline,
    integrity: Integrity,
    *,
    lost_operations_pct: float = LEAST_LOST_PCT,
) -> list[Finding]:
    """The profiler lost over 1 % of a rank's GPU operations amid others, and no step without such a loss is left.

    Over 5 % nothing is concluded of that rank.
    """
    share = _lost_in_all(headline, integrity, lost_operations_pct)
    if share.empty:
        return []
    low, high = round(float(share.min())), round(float(share.max()))
    told = f"{max(high, 1)} %" if low == high else f"{max(low, 1)} to {high} %"
    whose = _whose(list(share.index))
    nothing = " Nothing is concluded of that." if (share >= SPOILT_PCT).any() else ""
    graphs = _graphs(integrity)
    what = f"The profiler lost {told} of {whose} GPU operations: their launches are here, they are not, so that"
    if graphs:
        on = whose.removesuffix("'s")
        what = f"The profiler did not record what CUDA graphs ran ({graphs:,} launches of them on {on}):"
    return [
        Finding(
            severity="high",
            title=f"{what} compute is too short and idle time too long.{nothing}",
            evidence=tuple({"rank": int(rank), "lost_pct": round(float(own), 2)} for rank, own in share.items()),
            recommendation="Record again with nsys profile --cuda-graph-trace=node."
            if graphs
            else "Record again, and less at once: fewer steps, without with_stack, record_shapes and "
            "profile_memory; no second profiler (DCGM, Nsight) beside it.",
            named=tuple(map(int, share.index)),
            is_about_capture=True,
            about=LOST,
        )
    ]


def _lost_in_all(headline: Headline, integrity: Integrity, least_pct: float) -> pd.Series:
    """`lost_pct` of ranks that lost that much and more, where no step without a loss is left."""
    share = lost_pct(integrity)
    is_in_all = len(headline) > 0 and not headline.table["steps"].notna().any()
    return share[share >= least_pct] if is_in_all else share.iloc[:0]


def lost_pct(integrity: Result) -> pd.Series:
    """Of each rank that lost some the per cent of its launches whose operation is missing amid others.

    Not of a file that is cut off: its streams' operations do not end at one moment.
    """
    frame = integrity.to_frame()
    cut = frame.loc[frame["check"] == TRUNCATED, "rank"]
    own = rows_where(frame, (frame["check"] == LOST_AMID) & frame["rank"].notna() & ~frame["rank"].isin(cut))
    share = 100 * own["count"].astype("float64") / own["total"].astype("float64")
    return pd.Series(share.to_numpy(), index=own["rank"].astype("int64").to_numpy())


def lost_on(integrity: Result) -> set[int]:
    """Ranks of which the profiler lost operations amid others, be they few."""
    frame = integrity.to_frame()
    return {int(rank) for rank in frame.loc[frame["check"] == LOST_AMID, "rank"].dropna()}


def _graphs(integrity: Integrity) -> int:
    """Launches of graphs of which nothing was recorded, where they are most of what was lost; else 0."""
    frame = integrity.to_frame()
    of_graphs = frame[frame["check"] == LOST_GRAPHS]
    is_most = len(of_graphs) > 0 and bool((2 * of_graphs["count"] >= of_graphs["total"]).all())
    return int(of_graphs["count"].max()) if is_most else 0


def cut_files(integrity: Integrity) -> list[Finding]:
    """A rank's file ends in the middle: what its GPU did is known in part, and nothing is concluded of that rank."""
    ranks = _with(integrity, TRUNCATED)
    if not ranks:
        return []
    whose = f"Rank {ranks[0]}'s file is" if len(ranks) == 1 else f"The files of ranks {listed(ranks)} are"
    it = "it" if len(ranks) == 1 else "them"
    return [
        Finding(
            severity="high",
            title=f"{whose} cut off: what the profiler wrote last, mostly GPU work, is missing, and nothing is "
            f"concluded of {it}.",
            recommendation="Record again: let the profiler end its export before the process is killed, with room on "
            "the disk.",
            named=tuple(ranks),
            is_about_capture=True,
            about=CUT_OFF,
        )
    ]


def impossible_times(integrity: Integrity) -> list[Finding]:
    """Operations of one stream run inside each other, take no time, or lie days apart: no GPU and no recording does so.

    Nor does one write times that are no numbers, or events that end before they start. Nothing is concluded of such a
    rank.
    """
    whats: dict[tuple[int, ...], list[str]] = {}
    for check, what in integrity_integrity.IMPOSSIBLE.items():
        if ranks := _with(integrity, check):
            whats.setdefault(tuple(ranks), []).append(what)
    return [_of_times(list(ranks), what) for ranks, what in whats.items()]


def _of_times(ranks: list[int], whats: list[str]) -> Finding:
    whose = _whose(ranks)
    return Finding(
        severity="high",
        title=f"{first_upper(whose)} times cannot be true: {', and '.join(whats)}. Compute, idle time and "
        f"waits are not known, and nothing is concluded of {'it' if len(ranks) == 1 else 'them'}.",
        recommendation=f"Record again; {_AS_WRITTEN}, with the streams' own numbers and the format's unit of time.",
        named=tuple(ranks),
        is_about_capture=True,
    )


def shared_numbers(integrity: Integrity) -> list[Finding]:
    """Operations bear numbers of launches that are not their own, 5 % of a rank's and more.

    Its file holds several recordings or processes, or its numbers are damaged. Nothing is concluded of such a rank.
    """
    found = ((_with(integrity, check), what) for check, what in integrity_integrity.NOT_THEIR_OWN.items())
    return [
        Finding(
            severity="high",
            title=f"{first_upper(_whose(ranks))} {what}: which call launched what, and in which step, is not known, "
            f"and nothing is concluded of {'it' if len(ranks) == 1 else 'them'}.",
            recommendation=f"{first_upper(_AS_WRITTEN)}.",
            named=tuple(ranks),
            is_about_capture=True,
        )
        for ranks, what in found
        if ranks
    ]


def _with(integrity: Result, check: str) -> list[int]:
    return integrity_integrity.gravely(integrity.to_frame(), check)


def _whose(ranks: list[int]) -> str:
    return f"{numbered('rank', ranks)}'s"


# Whether a capture is fit for advice: what it cannot tell, and how to record it again.


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


# Whether a rank began the first recorded step late, for what was not recorded: others wait for it in that step.


LATE_START = 0.5
"""Of a later step: what others wait in the first one, more than in these."""

_OF_MEAN = 0.1
"""Of a later step, by how much the mean of all is longer for it: of many steps one is no news."""

_MOSTLY = 0.5
"""Of that wait, by which a rank begins the step later than who waits: what fills a pipeline is no late start."""

_OWN = 0.2
"""Of that wait: a rank that needs so much longer in the first step than later is late in it, and not before."""


def late_start(
    step_needs: StepNeeds, steps: Steps, clocks: Clocks, *, late_start_times: float = LATE_START
) -> list[Finding]:
    """In the first recorded step ranks wait for others whose own is no longer than later ones: they began it late.

    By half a step and more, a tenth of the mean; most of it they began later, by the ranks' common clock. What they did
    before it was not recorded: the profiler's start, saving, evaluating.
    """
    complete = complete_steps(steps.table)
    if not len(step_needs) or not len(complete):
        return []
    table = rows_where(step_needs.table, step_needs.table["step"].isin(complete["step"].unique()))
    table = table.assign(
        length_ns=table["end_ns"] - table["begin_ns"], wait_ns=table["exposed_wait_ns"] + table["exposed_unmatched_ns"]
    )
    waits, lengths = (by_step_and_rank(table, name).dropna(axis=1) for name in ("wait_ns", "length_ns"))
    if len(lengths) < 2 or lengths.shape[1] < 2 or lengths.index[0] != step_needs.table["step"].min():
        return []
    first, own_ns = int(lengths.index[0]), lengths - waits
    more_ns, longer_ns = (wide.iloc[0] - wide.iloc[1:].median() for wide in (waits, own_ns))
    waiting, most_ns, later_ns = int(more_ns.idxmax()), float(more_ns.max()), float(lengths.iloc[1:].median().median())
    begins = _begins(rows_where(table, table["step"] == first), clocks.offsets_ns())
    is_late = (more_ns <= _OWN * most_ns) & (begins[more_ns.index] - begins[waiting] >= _MOSTLY * most_ns)
    late = [int(rank) for rank in more_ns.index[is_late]]
    if not late or longer_ns[late].max() > _OWN * most_ns:
        return []
    if most_ns < max(late_start_times, _OF_MEAN * len(lengths)) * later_ns:
        return []
    did = "it" if len(late) == 1 else "they"
    shown = ["step", "rank", "begin_ns", "length_ns", "wait_ns"]
    return [
        Finding(
            severity="medium",
            title=f"In step {first}, the first that was recorded, rank {waiting} waits {time_text(most_ns)} longer "
            f"than later for {numbered('rank', late)}, which began it late: what {did} did before was not recorded.",
            evidence=plain(only(rows_where(table, table["step"] == first), shown)),
            recommendation=f"Leave it out: --steps {first + 1}:. Saving, evaluating or the profiler's own start may "
            "lie before it: record from an earlier step on to see it.",
            caveat="Means over steps hold that wait.",
            is_about_capture=True,
            steps=(first,),
            named=(*late, waiting),
            table="step_needs",
        )
    ]


def _begins(table: pd.DataFrame, offsets_ns: Mapping[int, int]) -> pd.Series:
    """When each rank begins the step, on one clock as far as it is known."""
    begins = table.set_index("rank")["begin_ns"].astype("float64")
    return begins - [offsets_ns.get(int(rank), 0) for rank in begins.index]


# Whether the first step that was recorded is a warm-up, of which means tell nothing.


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
