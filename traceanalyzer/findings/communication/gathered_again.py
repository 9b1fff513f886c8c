"""Sharded parameters that the backward pass gathers once more, because they were dropped after the forward pass."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.group_names import SHARDED
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.phases.call_phases import CallPhases
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, severity
from traceanalyzer.findings.communication.without_calls import gain_without
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import in_a_line

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
