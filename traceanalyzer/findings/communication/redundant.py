"""Communication that is not needed: every micro-step, gathered again, more often than peers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import SHARDED, Groups
from traceanalyzer.analyses.phases.comm_phases import CallPhases
from traceanalyzer.analyses.phases.micro_steps import GRADIENT_COLLECTIVES, MicroSteps
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, LEAST_GAIN_PCT, Basis, Title, Won, severity
from traceanalyzer.findings.communication.exposed import gain_without
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.meaning.columns import Unit, in_a_line, numbers, size_text
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.vocabulary import listed

# Gradients that are exchanged in every micro-step, though only the last exchange before the optimizer counts.


LEAST_CALLS = 3
"""Of a step: two alike may be of two models that are trained in turn."""

LEAST_BYTES = 64 << 10
"""Smaller reductions are of losses, norms and flags, not of gradients."""


def redundant_exchanges(
    headline: Headline,
    steps: Steps,
    calls: Calls,
    micro_steps: MicroSteps,
    replay: Replay,
    *,
    redundant_calls: int = LEAST_CALLS,
) -> list[Finding]:
    """Every micro-step of every step exchanges the same sequence of gradients: all but the last are redundant.

    The gain is of the job replayed with those transfers gone.
    """
    if not len(headline) or not len(micro_steps) or not len(calls):
        return []
    basis = Basis.of(headline, steps)
    held = basis.within(micro_steps.table)
    counts = held["micro_steps"].dropna().unique()
    if basis.steps is None or len(counts) != 1 or int(counts[0]) < 2:
        return []
    micro = int(counts[0])
    # Several optimizers, one after the other: models that are trained in turn, each with its own gradients.
    if not (held["synchronising_micro_steps"] == micro).all() or (held["optimizer_steps"].fillna(1) > 1).any():
        return []
    own = basis.within(calls.table)
    own = own[own["collective"].isin(GRADIENT_COLLECTIVES) & (own["size_bytes"] >= LEAST_BYTES).fillna(value=False)]
    repeats = [_repeated(rows, micro, redundant_calls) for _, rows in own.groupby(["rank", "step"])]
    if not repeats or any(rows is None for rows in repeats):
        return []
    redundant = pd.concat([rows for rows in repeats if rows is not None])
    one = redundant[redundant["rank"] == redundant["rank"].iloc[0]]
    size = int(one["size_bytes"].sum()) / basis.per
    gain = gain_without(replay.engine, redundant) if replay.engine else None
    return [_redundant_exchanges_finding(micro, len(one) / basis.per, size, gain, str(one["collective"].iloc[0]))]


def _repeated(rows: pd.DataFrame, micro: int, least_calls: int) -> pd.DataFrame | None:
    """All but the last of so many equal sequences of calls; `None` where the step's calls are no such sequence."""
    ordered = rows.sort_values("start_ns")
    each, rest = divmod(len(ordered), micro)
    if rest or each * micro < least_calls:
        return None
    sizes = ordered["size_bytes"].to_numpy(dtype=np.int64).reshape(micro, each)
    names = ordered["collective"].astype("str").to_numpy().reshape(micro, each)
    groups = ordered["group_ranks"].astype("str").to_numpy().reshape(micro, each)
    is_equal = all((table == table[0]).all() for table in (sizes, names, groups))
    return ordered.iloc[: each * (micro - 1)] if is_equal else None


def _redundant_exchanges_finding(micro: int, calls: float, size: float, gain: Gain | None, collective: str) -> Finding:
    moved = size_text(size)
    gains = Title()
    if gain is not None:
        gains = Title(f" Without them, {gain.whole} is ", Won.recorded(gain), ".")
        if gain.gain_pct < LEAST_GAIN_PCT:
            gains = Title(
                " Without their transfers alone a step is no shorter as recorded, as something else binds it: "
                "what launching them takes the hosts comes on top, and is not told apart."
            )
    every, are = ("Both", "is") if micro == 2 else (f"All {micro}", "are")
    each = f"{calls:.0f} {collectives_words(collective)} and {moved} a step on each rank"
    return Finding(
        severity="low" if gain is None else severity(gain.gain_pct),
        title=Title(
            f"{every} micro-steps of a step exchange the same gradients: {micro - 1} of {micro} exchanges {are} "
            f"redundant, {each}.",
            gains,
        ),
        summary=f"Redundant {collectives_words(collective)}: gradients are exchanged in every micro-step.",
        recommendation="Exchange gradients in the last micro-step only: model.no_sync() (DDP), "
        "set_requires_gradient_sync(False) (FSDP2) around all but the last micro-batch.",
        caveat="With sharded gradients it costs memory: each rank then holds whole gradients between micro-steps. "
        "Where optimizers are not recorded, two models of one shape that are trained in turn look the same.",
        **gained(gain if gain is not None and gain.gain_pct >= LEAST_GAIN_PCT else None),
        table="micro_steps",
    )


# Sharded parameters that the backward pass gathers once more, because they were dropped after the forward pass.


_MOSTLY = 0.8
"""Of the bytes that backward gathers: what forward gathered before."""

_KEYS = ["rank", "step", "group", "group_ranks", "size_bytes"]


def gathered_again(
    headline: Headline,
    steps: Steps,
    calls: Calls,
    call_phases: CallPhases,
    groups: Groups,
    replay: Replay,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """In backward a sharding group gathers arrays of the sizes that it gathered in forward: 3 % of a step, at least.

    The gain is of the job replayed with the transfers of those in backward gone; what it costs is the memory of what is
    kept meanwhile, so it is said with its size.
    """
    if replay.engine is None or not len(headline) or not len(calls) or not groups.table["role"].eq(SHARDED).any():
        return []
    basis = Basis.of(headline, steps)
    gathers = _gathers(basis.within(calls.table), call_phases.table, groups.table)
    again = _again(gathers)
    if basis.steps is None or again.empty:
        return []
    gain = gain_without(replay.engine, again)
    share = gain.gain_pct
    if share < clear_gain_pct:
        return []
    by_rank = again.groupby("rank")["size_bytes"].agg(["size", "sum"]).max() / basis.per
    count, kept = f"{by_rank['size']:.3g}", in_a_line(by_rank["sum"], Unit.BYTES)
    return [
        Finding(
            severity=severity(share),
            title=Title(
                f"Parameters are gathered twice: {count} all-gathers a step on each rank, {kept}, are in "
                "backward and of the sizes that the same group gathered in forward. Kept in between, "
                f"{gain.whole} is ",
                Won.recorded(gain),
                ".",
            ),
            recommendation="Where memory allows it, keep parameters after forward: reshard_after_forward=False "
            "(FSDP2), ShardingStrategy.SHARD_GRAD_OP (FSDP), stage 2 instead of 3 (DeepSpeed); or keep them on the "
            "ranks of a host only (reshard_after_forward=8 and the like).",
            caveat=f"It costs up to {kept} of memory on each rank. That arrays of one size are the same "
            "parameters is inferred: the trace has no addresses.",
            **gained(gain),
            table="calls",
        )
    ]


def _gathers(calls: pd.DataFrame, phases: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """All-gathers of known size in groups that shard parameters, with the phase that launched them."""
    held = calls[(calls["collective"] == "all_gather") & calls["size_bytes"].notna() & calls["step"].notna()]
    sharded = groups.loc[groups["role"] == SHARDED, ["group", "group_ranks"]]
    of_group = pd.MultiIndex.from_frame(sharded.astype("str"))
    held = held[pd.MultiIndex.from_frame(held[["group", "group_ranks"]].astype("str")).isin(of_group)]
    return held[["call", *_KEYS]].merge(phases[["rank", "call", "phase"]], on=["rank", "call"])


def _again(gathers: pd.DataFrame) -> pd.DataFrame:
    """Those in backward of whose size the same group had one in the step's forward; none unless most are so."""
    backward = gathers[gathers["phase"] == "backward"]
    forward = gathers[gathers["phase"] == "forward"].groupby(_KEYS, dropna=False, observed=True).size()
    if backward.empty or forward.empty:
        return backward.iloc[:0]
    place = backward.groupby(_KEYS, dropna=False, observed=True).cumcount().to_numpy()
    before = forward.reindex(pd.MultiIndex.from_frame(backward[_KEYS])).fillna(0).to_numpy(dtype=np.int64)
    again = backward[place < before]
    return again if again["size_bytes"].sum() >= _MOSTLY * backward["size_bytes"].sum() else again.iloc[:0]


# A process group that exchanges more often in a step than groups that do the same: gradients of every micro-step.


LEAST_TIMES = 1.5
"""As many calls as the others' median: from here on the group does something else."""

_SORT = ["role", "group_size", "collective", "size_bytes"]
_GROUP = ["group", "group_ranks"]


def more_exchanges(
    headline: Headline,
    steps: Steps,
    calls: Calls,
    groups: Groups,
    pipeline: Pipeline,
    replay: Replay,
    *,
    more_exchanges_times: float = LEAST_TIMES,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """A group runs a collective of one size 1.5 times as often as others of its role and size do.

    The gain is of the job replayed without the transfers of what it runs more, all but each step's last; it is said
    from 3 % of a step on. Stages of pipelines differ by design.
    """
    if replay.engine is None or not len(headline) or not len(calls) or not _have_sisters(groups) or len(pipeline):
        return []
    basis = Basis.of(headline, steps)
    held = _of_roles(basis.within(calls.table), groups.table)
    if basis.steps is None or held.empty:
        return []
    found = []
    for row in _more(held, basis, more_exchanges_times).to_dict("records"):
        own = held[(held[[*_SORT, *_GROUP]] == pd.Series(row)[[*_SORT, *_GROUP]]).all(axis=1)]
        place = own.sort_values("start_ns").groupby(["rank", "step"]).cumcount(ascending=False)
        gain = gain_without(replay.engine, own[place.reindex(own.index) >= round(row["others"])])
        if gain.gain_pct >= clear_gain_pct:
            found.append(_more_exchanges_finding(row, gain))
    return found


def _more_exchanges_finding(row: Mapping[str, Any], gain: Gain) -> Finding:
    ranks = tuple(numbers(row["group_ranks"]))
    what = f"{collectives_words(str(row['collective']))} of {in_a_line(float(row['size_bytes']), Unit.BYTES)}"
    return Finding(
        severity=severity(gain.gain_pct),
        title=Title(
            f"Ranks {listed(ranks)} run {row['count']:.3g} {what} a step among each other, other groups of as many "
            f"ranks that do the same {row['others']:.3g}. Without what is more, {gain.whole} is ",
            Won.recorded(gain),
            ".",
        ),
        recommendation="Look at how these ranks are set up: gradients that are exchanged in every micro-step "
        "(no_sync() is missing), other buckets, a hook or a metric of theirs alone.",
        caveat="Which of the calls are not needed is not known: of each step as many as the others run are left, the "
        "last ones.",
        **gained(gain),
        ranks=ranks,
        cause="transfer",
        table="calls",
    )


def _have_sisters(groups: Groups) -> bool:
    """Whether a role has several groups."""
    return bool(groups.table.drop_duplicates(_GROUP)["role"].dropna().duplicated().any())


def _of_roles(calls: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """Calls of known size in groups whose role and ranks are known, with both."""
    known = groups.loc[groups["role"].notna() & groups["group_ranks"].notna(), [*_GROUP, "role", "group_size"]]
    held = calls[calls["collective"].notna() & calls["size_bytes"].notna() & calls["step"].notna()]
    held = held[["rank", "call", "step", "start_ns", "collective", "size_bytes", *_GROUP]]
    held, known = (table.astype(dict.fromkeys(_GROUP, "object")) for table in (held, known))
    return held.astype({"collective": "object"}).merge(known, on=_GROUP)


def _more(held: pd.DataFrame, basis: Basis, times: float) -> pd.DataFrame:
    """Groups that run a sort of call more often than the median of the others: `count` of a step, and the `others`'."""
    by_rank = held.groupby([*_SORT, *_GROUP, "rank"]).size().rename("count").reset_index()
    each = by_rank.groupby([*_SORT, *_GROUP])["count"].max().div(basis.per).reset_index()
    others = [
        each.loc[own.difference([row]), "count"].median() for own in each.groupby(_SORT).groups.values() for row in own
    ]
    rows = [row for own in each.groupby(_SORT).groups.values() for row in own]
    each = each.loc[rows].assign(others=others)
    return each[each["count"] >= times * each["others"]]  # of a group without others it is NA
