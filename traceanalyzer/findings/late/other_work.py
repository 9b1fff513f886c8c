"""Why a rank computes longer: in another number format, more of it, slower, or by other operators than its peers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.mfu import Mfu
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.findings.alike import of_the_others, the_others
from traceanalyzer.findings.basis import EXPLAINED_PCT, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_advice import LOOK_AT_GPU
from traceanalyzer.findings.late.late_words import each_of
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import digits, in_a_line, time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.model.tables import rows_where

MORE = 1.05
"""Times the others' FLOPs, at least."""

_MOST_NAMES = 3
_FORMATS = {"tf32": "TF32"}
"""Number formats by another name than they are written with."""

_SHOWN = ["rank", "family", "element_type", "operator", "calls", "flops", "gpu_ns"]


def other_work(
    episodes: Episodes,
    efficiency: Efficiency,
    mfu: Mfu,
    pipeline: Pipeline,
    *,
    explained_pct: float = EXPLAINED_PCT,
    more_flops_times: float = MORE,
) -> list[Finding]:
    """What differs on a rank that is late by computing longer, where that explains half of it.

    That is the number format of its matrix products, its FLOPs, how many of them its products do a second where sizes
    differ from rank to rank, or the operators that only it runs. Stages of a pipeline differ by design, and where the
    same kernels take longer the work is the same.
    """
    if len(pipeline) or not len(efficiency):
        return []
    table = efficiency.to_frame()
    table = rows_where(table, table["family"] != "communication")
    part = explained_pct / 100
    found = []
    for row in said(episodes):
        late = numbers(row["ranks"])
        others = sorted({int(rank) for rank in table["rank"].unique()} - {*late})
        if row["cause"] == "compute" and row["same_work_ratio"] is None and others:
            differs = _formats(table, late, others, part) or _amounts(table, mfu, row, others, part, more_flops_times)
            differs = differs or _rates(table, row, others, part, more_flops_times)
            differs = differs or (_operators(table, late, others, row, part) if row["name"] is None else None)
            if differs:
                found.append(_finding(differs, table, row, others, of_lead(episodes, row)))
    return found


class _Said(Struct, frozen=True):
    """What differs, what to do, and the one other rank that is named beside the late ones, if there is one."""

    title: str
    advice: str
    other: tuple[int, ...]


def _finding(said: _Said, table: pd.DataFrame, row: Mapping[str, Any], others: Sequence[int], part_of: str) -> Finding:
    shown = table[table["rank"].isin([numbers(row["ranks"])[0], others[0]])]
    return Finding(
        severity="low",
        title=said.title,
        evidence=plain(shown.sort_values("gpu_ns", ascending=False, kind="stable")[_SHOWN].head(8)),
        recommendation=said.advice,
        gain_ns=row["gain_ns"],
        named=(*numbers(row["ranks"]), *said.other),
        table="efficiency",
        part_of=part_of,
        tells_why=True,
    )


def _formats(table: pd.DataFrame, late: Sequence[int], others: Sequence[int], part: float) -> _Said | None:
    """Where the late ranks' matrix products mostly run in another number format, and take longer for it."""
    products = table[(table["family"] == "gemm") & table["element_type"].notna()]
    by_type = products.groupby(["rank", "element_type"], observed=True)["gpu_ns"].sum().unstack(fill_value=0)  # noqa: PD010 - a table of two keys
    if not {*late, *others} <= {*by_type.index}:
        return None
    mostly = by_type.idxmax(axis=1)
    own, theirs = {*mostly.loc[[*late]]}, {*mostly.loc[[*others]]}
    own_ns, their_ns = (float(by_type.loc[[*ranks]].sum(axis=1).median()) for ranks in (late, others))
    if len(own) > 1 or len(theirs) > 1 or own == theirs or own_ns - their_ns < part * _longer(table, late, others):
        return None
    formats = [_FORMATS.get(str(one), str(one)) for one in (*own, *theirs)]
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)}'s matrix products run in {formats[0]}, {of_the_others(others)} in {formats[1]}: "
        f"{time_text(own_ns)} in the capture, and {time_text(their_ns)}."
    )
    advice = f"Let {who} compute in {formats[1]}, too: the same autocast, matrix products' precision, parameters."
    return _Said(title, advice, _only(others))


def _amounts(
    table: pd.DataFrame, mfu: Mfu, row: Mapping[str, Any], others: Sequence[int], part: float, more: float
) -> _Said | None:
    """Where FLOPs of operators differ as the time does, or half as much."""
    late, own = numbers(row["ranks"]), mfu.to_frame()
    steps = numbers(row["numbers"]) if row["numbers"] else own["step"].dropna().unique().tolist()
    own = own[own["step"].isin(steps)] if own["step"].notna().any() else own
    done = own.groupby("rank")[["model_flops", "recompute_flops"]].mean().astype("float64").sum(axis=1)
    if not {*late, *others} <= {*done.index}:
        return None
    flops, theirs = float(done.loc[[*late]].median()), float(done.loc[[*others]].median())
    if flops < more * theirs or not row["peers_ns"] or not theirs:
        return None
    if flops / theirs - 1 < part * (row["own_ns"] / row["peers_ns"] - 1):
        return None
    calls = table[table["family"] == "gemm"].groupby("rank")["calls"].sum()
    counts = [float(calls.reindex([*ranks]).median()) for ranks in (late, others)]
    times = digits(flops / theirs)
    how = f", in as many matrix products: their inputs are {times} times as large" if counts[0] == counts[1] else ""
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)}'s operators do {in_a_line(flops, Unit.FLOPS)}{each_of(row)}, {of_the_others(others)} "
        f"{in_a_line(theirs, Unit.FLOPS)}{how or f', {times} times as much'}."
    )
    advice = f"Give {who} as much as the others: batches, sequences, experts, what else it computes."
    return _Said(title, advice, _only(others))


def _rates(
    table: pd.DataFrame, row: Mapping[str, Any], others: Sequence[int], part: float, more: float
) -> _Said | None:
    """Where the late ranks' matrix products do fewer FLOPs a second, in products that are no smaller."""
    late, products = numbers(row["ranks"]), table[(table["family"] == "gemm") & table["flops"].notna()]
    sums = products.groupby("rank")[["flops", "gpu_ns", "calls"]].sum().astype("float64")
    if not {*late, *others} <= {*sums.index} or SIZES in (row["name"] or "") or not row["peers_ns"]:
        return None
    each = pd.DataFrame({"rate": sums["flops"] / sums["gpu_ns"], "size": sums["flops"] / sums["calls"]})
    own, theirs = (each.loc[[*ranks]].median() for ranks in (late, others))
    slower_ns = row["own_ns"] * (1 - own["rate"] / theirs["rate"])
    is_smaller = own["size"] * more < theirs["size"]
    if is_smaller or own["rate"] * more > theirs["rate"] or slower_ns < part * (row["own_ns"] - row["peers_ns"]):
        return None
    who = numbered("rank", late)
    rates = [f"{digits(one['rate'] / 1000)} TFLOP/s" for one in (own, theirs)]
    title = (
        f"{first_upper(who)}'s matrix products run at {rates[0]}, {of_the_others(others)} at {rates[1]}, "
        "and are no smaller."
    )
    advice = f"Products as large take {who} longer, by other kernels or on a slower GPU: {LOOK_AT_GPU}"
    return _Said(title, advice, _only(others))


def _operators(
    table: pd.DataFrame, late: Sequence[int], others: Sequence[int], row: Mapping[str, Any], part: float
) -> _Said | None:
    """Where operators that no other rank runs take the time; with those that only the others run."""
    if not row["is_in_every_step"]:
        return None
    by_rank = table.groupby(["operator", "rank"], observed=True)["gpu_ns"].sum().unstack(fill_value=0)  # noqa: PD010 - a table of two keys
    if not {*late, *others} <= {*by_rank.columns}:
        return None
    own, theirs = (by_rank[[*ranks]].median(axis=1) for ranks in (late, others))
    only = own[(by_rank[[*others]] == 0).all(axis=1)].sort_values(ascending=False, kind="stable")
    without = theirs[(by_rank[[*late]] == 0).all(axis=1)].sort_values(ascending=False, kind="stable")
    if only.sum() - without.sum() < part * _longer(table, late, others):
        return None
    instead = f"; {the_others(others)} {_run(others)} {_names(without)} instead" if without.sum() else ""
    who = numbered("rank", late)
    title = (
        f"{first_upper(who)} {_run(late)} {_names(only)}, which no other rank runs "
        f"({time_text(float(only.sum()))} in the capture){instead}."
    )
    advice = f"Let {who} take the path of the others: the same backends (of attention), options and versions."
    return _Said(title, advice, _only(others) if instead else ())


def _longer(table: pd.DataFrame, late: Sequence[int], others: Sequence[int]) -> float:
    """By how much the late ranks' kernels take longer in the capture; never 0."""
    total = table.groupby("rank")["gpu_ns"].sum()
    return max(float(total.reindex([*late]).median() - total.reindex([*others]).median()), 1.0)


def _names(ns: pd.Series) -> str:
    """`aten::bmm, aten::where, aten::softmax and others`."""
    held = [str(name) for name, own in ns.items() if own > 0]
    return " and ".join(held) if len(held) < _MOST_NAMES else f"{', '.join(held[:_MOST_NAMES])} and others"


def _only(others: Sequence[int]) -> tuple[int, ...]:
    """The ranks that `the_others` names."""
    return tuple(others) if len(others) == 1 else ()


def _run(ranks: Sequence[int]) -> str:
    return "runs" if len(ranks) == 1 else "run"
