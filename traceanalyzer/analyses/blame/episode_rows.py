"""One episode's figures: what its ranks need more, what the others wait, and how late their hosts are."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.lateness import launches_more
from traceanalyzer.analyses.blame.meetings import awaited_in
from traceanalyzer.analyses.blame.step_needs import host_needs_ns
from traceanalyzer.analyses.blame.transfers import TRANSFER
from traceanalyzer.analyses.host.host_names import is_autograd_node, is_framework_range
from traceanalyzer.analyses.spread import robust_deviation
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, HOST
from traceanalyzer.model.tables import only, rows_where

HOST_BEYOND = 1.1
"""A host that needs less than this times what the slowest other one needs is no later than hosts are here."""

_HOSTS_DIFFER = 0.15
"""Deviation of the logarithm of what a host needs for a step, where nothing is wrong.

Of the two hosts of 66 recordings of jobs without a fault (two H200s of one machine, PyTorch's profiler) one needs 1.24
times as long as the other (root of the mean square); they differ by more than 1.5 times in four of the 66. Of 55 more
(two H100s of another machine) it is 1.19 times, and more than 1.5 in one.
"""

_BY_CHANCE = 0.01
"""Of jobs of two hosts without a fault, those of which one is called late by chance; of many hosts each less often.

Of three to sixteen hosts it is 4 to 6 % (drawn, with the deviation above): how they differ is told from few.
The limit is 1.73 times what the only other host needs, 1.33 times of three that need alike, 1.20 of seven.
"""

_SIGMAS = 3.0

_MOST = 0.9
"""Of an episode's excess: the steps that hold so much of it are said where they are few."""

_BEYOND = 1.15
"""Times the excess of the next one: of ranks that are late together one is the worst."""


def cause_of(part: str) -> str:
    """What a part of the time that is longer is called as a cause: `compute`, `copies`, `data`."""
    return "copies" if part == COPY.column else part.removesuffix("_ns")


def is_of_every_host(row: Mapping[str, Any]) -> bool:
    """Whether its ranks' hosts are late by what other hosts need as well: nobody's fault.

    A range of PyTorch's own, or a node of autograd, is no name for it: every host is in that.
    """
    own, apart, name = row["own_host_ns"], row["apart_host_ns"], row["name"]
    is_named = isinstance(name, str) and not (is_framework_range(name) or is_autograd_node(name))
    return row["cause"] == HOST.key and not is_named and not (pd.isna(own) or pd.isna(apart) or own >= apart)


def beyond_ns(others: pd.Series) -> float:
    """From which time on a host needs more than these: 1.1 times what the slowest of them needs."""
    return HOST_BEYOND * float(others.max())


def apart_ns(others: pd.Series, steps: int = 1) -> float:
    """From which time on a host is apart from these by more than chance, each its time for a step.

    `steps`: of how many it is one, where it is late in some: in each of them it may be late by chance.

    Beyond them; and of hosts that differ much three deviations beyond their median: the
    one that happens to be the slowest is no fault. Of few hosts little is known of how they differ: what two hosts of
    healthy jobs do counts as what one of them tells.
    """
    middle = float(others.median())
    known = np.log(others[others > 0].to_numpy(dtype=np.float64))
    far = 0.0
    if len(known):
        variance = (_HOSTS_DIFFER**2 + float(((known - known.mean()) ** 2).sum())) / len(known)
        deviations = NormalDist().inv_cdf(1 - _BY_CHANCE / (len(known) + 1) / steps)
        far = float(np.exp(known.mean() + deviations * np.sqrt(variance * (1 + 1 / len(known)))))
    return max(
        far,
        beyond_ns(others),
        middle + _SIGMAS * robust_deviation(others),
    )


def row_of(group: pd.DataFrame, late: pd.DataFrame, calls: pd.DataFrame, complete: Sequence[int]) -> dict[str, Any]:
    """The columns of `Episodes` for some cells of one part; `late` are all steps of their job."""
    part = str(group["part"].iloc[0])
    numbers = sorted(group["step"].unique())
    every = late["step"].nunique()
    is_late = _ranks_and_steps(late).isin(_ranks_and_steps(group))
    own, others = rows_where(late, is_late), rows_where(late, ~is_late & late["step"].isin(numbers))
    peers = rows_where(others, others["peers"].isin(own["peers"]))
    is_of_stages = peers.empty and len(others) > 0
    peers, others = peers if len(peers) else others, others if len(others) else own
    excess_ns = _mean_step(group["excess_ns"], group["step"], complete)
    seen = _seen_in(numbers, rows_where(late, late["rank"].isin(others["rank"])))
    waited = _waits_of(others, late, seen)
    cost_ns = min(excess_ns, _mean_step(waited, others["step"], complete))
    own_ns = _mean_step(own[part], own["step"], complete)
    # Of transfers the measure are sister groups, some of which may be as late.
    peers_ns = max(own_ns - excess_ns, 0) if part == TRANSFER else _peers_ns(peers, part, complete)
    same_work_ratio = _times(group)
    is_slow_stage = part == COMPUTE.column and is_of_stages and not pd.isna(same_work_ratio)
    if is_slow_stage:  # other stages compute something else
        peers_ns = round(own_ns / same_work_ratio)
    is_in_every_step = _is_of_every(numbers, complete, every)
    return {
        "ranks": tuple(sorted(map(int, group["rank"].unique()))),
        "is_in_turn": bool(group["is_in_turn"].iloc[0]),
        "numbers": tuple(int(number) for number in numbers if number >= 0),
        "most_numbers": _most_of(group),
        "steps": every,
        "is_in_every_step": is_in_every_step,
        "cause": cause_of(part),
        "part": part,
        "loading_left": _loading_left(own, peers),
        "what": _known(group["what"].iloc[0]),
        "name": _known(group["name"].iloc[0]),
        "same_work_ratio": same_work_ratio,
        "is_slow_stage": is_slow_stage,
        "excess_ns": excess_ns,
        "own_ns": own_ns,
        "peers_ns": peers_ns,
        "cost_ns": cost_ns,
        "waiting_ranks": others["rank"].nunique(),
        **_most_waiting(others, waited, late, sorted({*seen.values()}), complete),
        "collective": _met_in(others, waited) or _collective(calls, sorted({*seen.values()}), set(others["rank"])),
        "step_ns": int((late["end_ns"] - late["begin_ns"]).mean()),
        "own_host_ns": _of_hosts(own, "min", complete),
        "peers_host_ns": _of_hosts(others, "max", complete),
        "apart_host_ns": _of_hosts(others, _apart(late, is_late, 1 if is_in_every_step else every), complete),
        "total_ns": cost_ns * len(numbers),
        **_worst(own, group, part),
    }


def _apart(late: pd.DataFrame, is_late: np.ndarray, steps: int) -> Callable[[pd.Series], float]:
    """What tells from which time on a host is late: of one that launches more, no chance counts."""
    return beyond_ns if launches_more(late)[is_late].all() else partial(apart_ns, steps=steps)


def _most_of(group: pd.DataFrame) -> tuple[int, ...]:
    """The fewest of its steps that hold nine tenths of the excess; none where that takes more than half of them."""
    each = group["excess_ns"].astype("float64").groupby(group["step"]).median()
    each = each.sort_values(ascending=False, kind="stable")
    count = int((each.cumsum() < _MOST * each.sum()).sum()) + 1
    return tuple(sorted(map(int, each.index[:count]))) if 2 * count <= len(each) else ()


def _peers_ns(peers: pd.DataFrame, part: str, complete: Sequence[int]) -> object:
    return _mean_step(peers[part], peers["step"], complete) if len(peers) else pd.NA


def _is_of_every(numbers: Sequence[int], complete: Sequence[int], compared: int) -> bool:
    """Whether it is in all complete steps, where these are several."""
    return {*complete} <= {*numbers} if len(complete) > 1 else len(numbers) == compared


def _waits(late: pd.DataFrame) -> pd.Series:
    """What each rank waits in each step while no compute runs."""
    waits = only(late, ["exposed_wait_ns", "exposed_unmatched_ns", "exposed_transfer_ns"]).sum(axis=1)
    waits.index = _ranks_and_steps(late)
    return waits


def _waits_of(others: pd.DataFrame, late: pd.DataFrame, seen: Mapping[int, int]) -> pd.Series:
    """By row of the others what they wait, in the steps in which that of the rows' is seen."""
    waited = _waits(late).reindex(pd.MultiIndex.from_arrays([others["rank"], others["step"].map(seen)]))
    return pd.Series(waited.to_numpy(), index=others.index)


def _most_waiting(
    others: pd.DataFrame, waited: pd.Series, late: pd.DataFrame, numbers: Sequence[int], complete: Sequence[int]
) -> dict[str, Any]:
    """Who waits most, and what that one waits in these steps, for whomever: absent where transfers cannot be told."""
    rank = int(waited.groupby(others["rank"]).sum().idxmax())
    held = rows_where(late, (late["rank"] == rank) & late["step"].isin(numbers))
    is_told = len(held) > 0 and not held["exposed_unmatched_ns"].fillna(0).any()
    wait_ns = _mean_step(held["exposed_wait_ns"], held["step"], complete) if is_told else pd.NA
    return {"most_waiting_rank": rank, "wait_ns": wait_ns}


def _ranks_and_steps(table: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(only(table, ["rank", "step"]))


def _seen_in(numbers: Sequence[int], others: pd.DataFrame) -> dict[int, int]:
    """The step in which the others wait for each of these: that one, or the next one in which ranks communicate.

    What comes after a step's last collective (saving, evaluating) is waited for in the next step's first.
    """
    waits = _waits(others).groupby(level="step").median()
    following = awaited_in(others).dropna()
    after = {step: int(following[step]) for step in numbers if step in following and following[step] not in numbers}
    return {step: max((step, after.get(step, step)), key=lambda each: float(waits.get(each, -1.0))) for step in numbers}


def _loading_left(own: pd.DataFrame, peers: pd.DataFrame) -> float:
    """What the peers' hosts take to load a step's data, as a part of what these take; 0 where it is not known."""
    each = [rows["loading_ns"].astype("float64").median() for rows in (peers, own)]
    return 0.0 if any(pd.isna(ns) for ns in each) or not each[1] else float(each[0] / each[1])


def _worst(own: pd.DataFrame, group: pd.DataFrame, part: str) -> dict[str, object]:
    """The rank that needs most more, and its time, where the others of the episode need clearly less than it."""
    excess = group.groupby("rank")["excess_ns"].sum().sort_values()
    is_one = len(excess) > 1 and not group["is_in_turn"].iloc[0] and excess.iloc[-1] >= _BEYOND * excess.iloc[:-1].max()
    if not is_one:
        return {"worst_rank": pd.NA, "worst_ns": pd.NA}
    rank = int(excess.index[-1])
    return {"worst_rank": rank, "worst_ns": round(float(own.loc[own["rank"] == rank, part].astype("float64").mean()))}


def _times(group: pd.DataFrame) -> Any:
    """How many times as long the same kernels take; absent where they do not make most of the excess."""
    same = rows_where(group, group["same_ns"].notna())
    if 2 * same["excess_ns"].sum() < group["excess_ns"].sum() or not same["peers_same_ns"].sum():
        return pd.NA
    return float(same["same_ns"].sum() / same["peers_same_ns"].sum())


def _known(name: object) -> str | None:
    return name if isinstance(name, str) else None


def _of_hosts(rows: pd.DataFrame, which: "str | Callable[[pd.Series], float]", complete: Sequence[int]) -> object:
    """A figure of the ranks' mean host times for a step: the least or the most of them, or what is apart.

    Of the complete steps, as all that is said of a step; of all where none of the rows is of one.
    """
    held = rows_where(rows, rows["step"].isin(complete))
    needed = host_needs_ns(held if len(held) else rows)
    return pd.NA if needed.empty else round(float(needed.agg(which)))


def _met_in(others: pd.DataFrame, waited: pd.Series) -> str | None:
    """The collective of the CPU in which most of these waits lie."""
    met = others.groupby("met_in")["met_ns"].sum()
    return str(met.idxmax()) if len(met) and 2 * met.max() > waited.sum() else None


def _collective(calls: pd.DataFrame, numbers: Sequence[int], ranks: set[int]) -> str | None:
    """Where these ranks wait most."""
    held = rows_where(calls, calls["rank"].isin(ranks)) if len(calls) else calls
    held = held[held["step"].isin(numbers)] if len(held) and max(numbers) >= 0 else held
    if held.empty:
        return None
    waited = (held["wait_ns"] + held["unmatched_ns"]).astype("int64")
    waited = waited.groupby(held["collective"].astype("object")).sum()
    return str(waited.idxmax()) if len(waited) else None


def _mean_step(values: pd.Series, step: pd.Series, complete: Sequence[int]) -> int:
    """Mean over the complete steps, or over all without one, of the median over ranks."""
    each = values.astype("float64").groupby(step).median()
    held = each[each.index.isin(complete)]
    return round(float((held if len(held) else each).mean()))
