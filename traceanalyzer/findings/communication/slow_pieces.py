"""Collectives of medium size that reach a part of the rate of larger ones of their group: what joining them gives."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.collectives import SIZE_CLASSES, Collectives, size_classes
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.replay.transfer_lengths import BUCKETED
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, severity
from traceanalyzer.findings.communication.without_calls import gain_of_transfers
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.won import Won
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.quantities import in_a_line
from traceanalyzer.meaning.sentences import first_upper

_MEDIUM, _LARGER = SIZE_CLASSES[2], SIZE_CLASSES[3:5]

_SLOW = 0.5
"""Of the larger ones' rate: less is latency."""

_SEVERAL = 2.0
"""A step: of so many one can be made."""


def slow_pieces(
    headline: Headline,
    steps: Steps,
    collectives: Collectives,
    call_waits: CallWaits,
    replay: Replay,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Collectives of 1 to 16 MiB move data at less than half of the rate of larger ones of their kind and group.

    Joined, they take at that rate what their bytes take. The gain is at most that of this replay, for one that is
    joined of several starts when the last of them could; it is said from 3 % of a step on.
    """
    engine = replay.engine
    if engine is None or not len(headline) or not len(collectives) or not len(call_waits):
        return []
    basis = Basis.of(headline, steps)
    found = []
    for name, pairs in _slow(collectives).groupby("collective", observed=True):
        own = _calls(basis.within(call_waits.table), pairs)
        by_rank = own.groupby("rank").size() / basis.per
        if basis.steps is None or own.empty or by_rank.max() < _SEVERAL:
            continue
        gain = _gain(engine, own)
        if gain.gain_pct >= clear_gain_pct:
            found.append(_finding(str(name), pairs, own, float(by_rank.max()), gain))
    return found


def _slow(collectives: Collectives) -> pd.DataFrame:
    """Groups' medium collectives beside larger ones of the same kind: `busbw_gbps`, and theirs as `larger_gbps`."""
    keys = ["collective", "group", "group_ranks"]
    frame: pd.DataFrame = collectives.to_frame()
    if not frame["size_class"].isin(_LARGER).any() or not frame["size_class"].eq(_MEDIUM).any():
        return frame.iloc[:0]
    frame = frame[frame["collective"].isin(BUCKETED) & frame["busbw_gbps"].notna()].astype({"busbw_gbps": "float64"})
    rates = frame.groupby([*keys, "size_class"], dropna=False, observed=True)["busbw_gbps"].median().reset_index()
    medium = rates[rates["size_class"] == _MEDIUM]
    larger = rates[rates["size_class"].isin(_LARGER)].groupby(keys, dropna=False, observed=True)["busbw_gbps"].max()
    both = medium.merge(larger.rename("larger_gbps").reset_index(), on=keys)
    return both[both["busbw_gbps"] < _SLOW * both["larger_gbps"]]


def _calls(calls: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """The medium calls of these groups, with the rate of the larger ones and their own part of it."""
    held = calls[(size_classes(calls["size_bytes"]) == _MEDIUM) & calls["step"].notna()]
    held = held.astype({"group": "object", "group_ranks": "object", "collective": "object"})
    joined = held.merge(pairs, on=["collective", "group", "group_ranks"])
    return joined.assign(part=joined["busbw_gbps"] / joined["larger_gbps"])


def _gain(engine: Engine, calls: pd.DataFrame) -> Gain:
    """The job with these calls at the rate of the larger ones."""
    joins, transfer_ns = engine.job.joins, engine.job.recorded.transfer_ns
    part = calls.set_index(["rank", "call"])["part"]
    keys = pd.MultiIndex.from_frame(joins[["rank", "call"]].astype("int64"))
    held = part.reindex(keys).fillna(1.0).to_numpy(dtype=np.float64)
    return gain_of_transfers(engine, np.round(transfer_ns * held).astype(np.int64))


def _finding(name: str, pairs: pd.DataFrame, calls: pd.DataFrame, count: float, gain: Gain) -> Finding:
    several = collectives_words(name)
    size = in_a_line(float(calls["size_bytes"].astype("float64").mean()), Unit.BYTES)
    rate, larger = (pairs[column].median() for column in ("busbw_gbps", "larger_gbps"))
    return Finding(
        severity=severity(gain.gain_pct),
        title=f"{first_upper(several)} of {size} on average, {count:.3g} a step on each rank, reach "
        f"{rate:.0f} GB/s, larger ones of the same group {larger:.0f}: what they cost is latency. Joined, and as fast "
        f"as those, {gain.whole} is {Won.recorded(gain, is_bound=True)}.",
        recommendation="Join them into pieces of 25 MB and more: DDP's bucket_cap_mb, larger FSDP units, one call for "
        "several tensors (coalesced, or flattened).",
        caveat="A joined call starts when the last of its data is there: beside backward some of it is hidden less.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        table="collectives",
    )
