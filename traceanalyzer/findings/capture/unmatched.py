"""Communication whose partners the capture does not hold: what part of a step cannot be told from waiting."""

from collections.abc import Sequence

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, Integrity
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.listed import listed, numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import only

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
