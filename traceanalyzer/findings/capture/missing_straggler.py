"""A rule about ranks without a trace for which all others wait."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, Integrity
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import AS_LONG
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.capture.unmatched import PARTNERS
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_span
from traceanalyzer.meaning.wholes import step_or_capture

if TYPE_CHECKING:
    from traceanalyzer.analyses.names import CallsColumn

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
    keys: list[CallsColumn] = ["collective", "size_bytes", "group_ranks"]
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
