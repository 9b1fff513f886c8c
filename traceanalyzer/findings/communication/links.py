"""Links slower than the hardware, and collectives of medium size below the rate of larger ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import SIZE_CLASSES, Collectives, size_classes, transfer_kinds
from traceanalyzer.analyses.communication.groups import is_whole_job
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.lengths import BUCKETED
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.spread import robust_deviation
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, LEAST_GAIN_PCT, Basis, Title, Won, severity
from traceanalyzer.findings.communication.exposed import gain_of_transfers, taken
from traceanalyzer.findings.finding import Finding, changed, gained
from traceanalyzer.findings.link_rates import HEALTHY_PEAK, LOW_PEAK_PCT, SLOW_LINKS, healthy, slow_groups
from traceanalyzer.findings.statistics import alike
from traceanalyzer.findings.stragglers.stragglers import of_slow_links
from traceanalyzer.meaning.columns import Unit, in_a_line, numbers
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.vocabulary import first_upper, named

# Collectives that move data far more slowly than the links can: which, on which ranks, and what it costs.


FEW_CHANNELS = 4
"""NCCL gives a large collective a block of threads for each channel: 16 and more of them between GPUs with NVLink."""

_CHANNELS = (
    "Let NCCL use more channels (a block of its kernels each): look for NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS and the "
    "process group's own settings. "
)


def low_bandwidth(
    collectives: Collectives,
    calls: Calls,
    replay: Replay,
    places: Places,
    episodes: Episodes,
    call_waits: CallWaits,
    *,
    low_peak_pct: float = LOW_PEAK_PCT,
) -> list[Finding]:
    """Collectives of over 16 MiB whose transfer, waits aside, is below 30 % of what the links carry.

    The gain is that of the replay with all calls of the collective as much faster as takes these to 40 %. Messages are
    one collective: a send is as slow as its receive, and one that goes both ways as those that go one way. Ranks whose
    groups are slower than the others' of as many hosts, by more than calls of one group differ, are named, as a host or
    rack where they are one. Several collectives are one finding, what gains most first, with the gain of all together.
    Where most of the gain is that of groups slower than their sister groups, it is part of what is said of these.
    """
    kinds = [
        _bandwidth_slow(groups, collectives, calls, places, call_waits)
        for _, groups in slow_groups(collectives, low_peak_pct).groupby("transfers")
    ]
    own_ns = {kind.name: gain.gain_ns if (gain := gain_of(replay, kind.faster)) else 0 for kind in kinds}
    kinds.sort(key=lambda kind: -own_ns[kind.name])
    told = [(kind, of_slow_links(episodes, kind.name, ns) if (ns := own_ns[kind.name]) else None) for kind in kinds]
    others = [kind for kind, late in told if late is None]
    of_late = [replace(_found([kind], replay), part_of=late, about=None) for kind, late in told if late is not None]
    return [*of_late, *([_found(others, replay)] if others else [])]


def few_channels(calls: Calls, collective: object, group: object) -> int | None:
    """The most blocks of any kernel of a group's collective, where even they are few; `None` where not known."""
    table = calls.table
    grids = table.loc[(table["collective"] == collective) & (table["group"] == group), "grid"].dropna().unique()
    blocks = [int(grid.partition("x")[0]) for grid in map(str, grids) if grid.partition("x")[0].isdigit()]
    return max(blocks) if blocks and max(blocks) <= FEW_CHANNELS else None


class _Kind(Struct, frozen=True):
    """A slow collective, in one group or in several that do the same: a job of many nodes has hundreds.

    `words` say its rate, `slower` which ranks are slower than the others, `faster` is the change to a healthy rate.
    """

    name: str
    words: str
    slower: str
    named: tuple[int, ...]
    faster: Change
    healthy_gbps: float
    has_few_channels: bool
    taken: str
    rows: tuple[dict[str, Any], ...]


def _bandwidth_slow(
    groups: pd.DataFrame, collectives: Collectives, calls: Calls, places: Places, call_waits: CallWaits
) -> _Kind:
    rows = groups.to_dict("records")
    slowest, fastest = rows[0], rows[-1]
    who = "" if pd.isna(slowest["group_label"]) else f", {slowest['group_label']},"
    rate = f"{slowest['busbw_gbps']:.0f}"
    if len(rows) > 1:
        who = f" of {len(rows)} groups{who and f', slowest {who[2:]}'}"
        rate += f" to {most}" if (most := f"{fastest['busbw_gbps']:.0f}") != rate else ""
    slower, apart = _slower_ranks(groups, collectives, places, _differ_by(slowest, call_waits))
    channels = few_channels(calls, slowest["collective"], slowest["group"])
    on = "" if channels is None else f" on {channels} channel{'' if channels == 1 else 's'}"
    return _Kind(
        name=str(slowest["transfers"]),
        words=f"{collectives_words(slowest['transfers'])}{who} reach {rate} GB/s{on}, "
        f"{slowest['peak_pct']:.0f} % of the links' {slowest['link_peak_gbps']} GB/s",
        slower=slower,
        named=tuple(dict.fromkeys((*_members(slowest, places), *apart))),
        faster=healthy(fastest),
        healthy_gbps=HEALTHY_PEAK * float(fastest["link_peak_gbps"]),
        has_few_channels=channels is not None,
        taken=taken(slowest),
        rows=_rows_of(groups, collectives),
    )


def _found(kinds: Sequence[_Kind], replay: Replay) -> Finding:
    """One finding of all of them: what is to be done is the same."""
    gain = gain_of(replay, *(kind.faster for kind in kinds))
    share = gain.gain_pct if gain else 0.0
    won = Title()
    if gain and share >= LEAST_GAIN_PCT:
        rates = named([f"{rate:.0f}" for rate in sorted({kind.healthy_gbps for kind in kinds})])
        each = " with all of them" if len(kinds) > 1 else ""
        won = Title(f" At {rates} GB/s, which healthy jobs reach,{each} {gain.whole} is ", Won.recorded(gain), ".")
    channels = _CHANNELS if any(kind.has_few_channels for kind in kinds) else ""
    return Finding(
        severity=severity(share),
        title=Title(
            f"Large {'; '.join(kind.words for kind in kinds)}.{''.join(kind.slower for kind in kinds)}",
            won,
        ),
        **gained(gain),
        evidence=tuple(row for kind in kinds for row in kind.rows),
        recommendation=f"{channels}Check the path that NCCL took (nvidia-smi topo -m, NCCL_DEBUG=INFO; "
        "analyze-traces doctor reads both), switches such as NCCL_P2P_DISABLE, and what else used the links or "
        "the GPU's memory at that time."
        f"{''.join(dict.fromkeys(kind.taken for kind in kinds))}",
        caveat="The transfer is the shortest duration over ranks, so waits are not in it; compute that runs beside it "
        "slows it. The peak supposes NVLink between all ranks of the group, on one host.",
        named=tuple(dict.fromkeys(rank for kind in kinds for rank in kind.named)),
        about=SLOW_LINKS,
    )


_AS_FAST = 0.9
"""Ranks that reach more than this part of the others' rate are none apart, however alike they are."""

_SIGMAS = 4.0


def _differ_by(slowest: Mapping[str, Any], call_waits: CallWaits) -> float:
    """By what factor groups' rates differ by chance: they are means of calls, which differ from one to the next."""
    table = call_waits.table
    is_like = (table["collective"] == slowest["collective"]) & table["transfer_ns"].notna()
    is_like &= size_classes(table["size_bytes"]) == slowest["size_class"]
    own = table[is_like].drop_duplicates("instance")
    costs = np.log(own["transfer_ns"].astype("float64").clip(lower=1) / own["size_bytes"].astype("float64"))
    groups = costs.groupby([own["group"].astype("object"), own["group_ranks"].astype("object")], dropna=False)
    calls, count = len(costs), groups.ngroups
    if calls <= count:
        return float("inf")  # single calls tell nothing of chance
    spread = robust_deviation(costs - groups.transform("median")) * np.sqrt(calls / (calls - count))
    return float(np.exp(_SIGMAS * spread / np.sqrt(groups.size().min())))


def _slower_ranks(
    groups: pd.DataFrame, collectives: Collectives, places: Places, chance: float
) -> tuple[str, tuple[int, ...]]:
    """A sentence on the ranks whose groups take longest for a byte, and these, if they are apart from the others."""
    slowest, frame = groups.iloc[0], collectives.to_frame()
    is_like = (frame["collective"] == slowest["collective"]) & (frame["size_class"] == slowest["size_class"])
    known = frame.loc[is_like, ["group_label", "group_ranks", "busbw_gbps"]].dropna()
    rows = [(_role(label), numbers(ranks), rate) for label, ranks, rate in known.itertuples(index=False)]
    role, members = _role(slowest["group_label"]), len(numbers(slowest["group_ranks"]))
    hosts = {rank: place.name for place in places.places() if place.kind == "host" for rank in place.ranks}
    spanned = len({hosts.get(rank) for rank in numbers(slowest["group_ranks"])})
    rows = [row for row in rows if len({hosts.get(rank) for rank in row[1]}) == spanned]
    own = [(one, 1 / rate) for like, ranks, rate in rows if (like, len(ranks)) == (role, members) for one in ranks]
    if not own:
        return "", ()
    costs = pd.DataFrame(own, columns=["rank", "cost"]).groupby("rank")["cost"].max()
    slow = alike(costs, places)
    if slow.is_one or slow.others is None:
        return "", ()
    slowest_cost = costs[list(slow.ranks)].max()
    if slow.others > _AS_FAST * slowest_cost or slowest_cost < chance * slow.others:
        return "", ()
    rates = f"{1 / slowest_cost:.0f} GB/s, the others {1 / slow.others:.0f}"
    return f" {slow.opening} reach {rates}: look at their links first.", slow.ranks


def _members(row: Mapping[str, Any], places: Places) -> tuple[int, ...]:
    """The ranks that a group's label lists: none without a label, nor where they are the whole job."""
    ranks = numbers(row["group_ranks"])
    return () if pd.isna(row["group_label"]) or is_whole_job(ranks, places.world_size) else ranks


def _role(label: object) -> str:
    """`data parallel` of `data parallel (ranks 0, 1)`."""
    return str(label).partition(" (")[0]


def _rows_of(groups: pd.DataFrame, collectives: Collectives) -> tuple[dict[str, Any], ...]:
    """All rows of the groups' collective; also where the trace does not name a group."""
    kinds = transfer_kinds(collectives.table["collective"])
    every = collectives.table[["group", "group_ranks"]].assign(transfers=kinds)
    own = {_identity(row) for row in groups.to_dict("records")}
    return tuple(
        row for row, of in zip(collectives.rows(), every.to_dict("records"), strict=True) if _identity(of) in own
    )


def _identity(row: Mapping[Any, Any]) -> tuple[str, str, str]:
    return str(row["group"]), str(row["group_ranks"]), str(row["transfers"])


# Collectives of medium size that reach a part of the rate of larger ones of their group: what joining them gives.


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
    for name, pairs in _slow_pieces_slow(collectives).groupby("collective", observed=True):
        own = _calls(basis.within(call_waits.table), pairs)
        by_rank = own.groupby("rank").size() / basis.per
        if basis.steps is None or own.empty or by_rank.max() < _SEVERAL:
            continue
        gain = _gain(engine, own)
        if gain.gain_pct >= clear_gain_pct:
            found.append(_finding(str(name), pairs, own, float(by_rank.max()), gain))
    return found


def _slow_pieces_slow(collectives: Collectives) -> pd.DataFrame:
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
        changes=changed(gain),
        table="collectives",
    )
