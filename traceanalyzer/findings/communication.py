"""Communication that could be hidden, faster, or fewer."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.communication.group_members import parsed
from traceanalyzer.analyses.replay.change import HIDDEN, Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import alike
from traceanalyzer.findings.bandwidth import few_channels, slow_classes, slowness_of
from traceanalyzer.findings.basis import Basis, milliseconds, severity
from traceanalyzer.findings.exposed_collective import EXPOSED
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.unprofiled import otherwise
from traceanalyzer.findings.wiring import taken

LEAST_TRANSFER_PCT = 5.0
"""Exposed transfer below this share of a step is not worth hiding."""

LITTLE_OVERLAP_PCT = 10.0

HEALTHY_PEAK = 0.4
"""Part of the links' peak that healthy captures reach."""

LEAST_GAIN_PCT = 1.0
"""Of a step; what gains less is not said."""

SMALL_BYTES = 1 << 20
MANY_CALLS = 50
"""Small collectives a step from which bucketing pays."""

SMALL_PCT = 1.0
"""Of a step; less is not worth the work."""

_CHANNELS = (
    "Let NCCL use more channels (a block of its kernels each): look for NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS and the "
    "process group's own settings. "
)

_BUCKETED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def little_overlap(headline: Headline, exposed_comm: ExposedComm, replay: Replay) -> list[Finding]:
    """Data moves in over 5 % of a step while no compute runs, and no rank overlaps a tenth of its communication.

    The gain is that of the replay in which no other stream waits for transfers: hosts that bind leave little of it.
    """
    rows = [row for row in headline.rows() if row["overlap_pct"] is not None]
    if not rows or max(row["overlap_pct"] for row in rows) >= LITTLE_OVERLAP_PCT:
        return []
    worst = _per_step(exposed_comm)
    if worst is None or worst["pct"] < LEAST_TRANSFER_PCT:
        return []
    overlap = max(row["overlap_pct"] for row in rows)
    gain = gain_of(replay, Change("comm", HIDDEN))
    won = max(gain.gain_ns, gain.unprofiled_gain_ns or 0) if gain else round(worst["ns"])
    share = 100 * won / (gain.before_ns if gain else worst["window_ns"])
    if share < LEAST_GAIN_PCT:
        return []
    return [
        Finding(
            rule="little_overlap",
            severity=severity(share),
            title=f"Next to nothing overlaps: rank {worst['rank']:.0f} moves data for {milliseconds(worst['ns'])} of a "
            f"{milliseconds(worst['window_ns'])} step while no compute runs "
            f"({overlap:.0f} % of communication is hidden).{_hidden(gain)}",
            evidence=tuple(rows),
            recommendation="Start communication as soon as its data is ready: bucketed gradients during backward, "
            "prefetched all-gathers, asynchronous collectives that are waited for where their result is used.",
            caveat="Time that ranks spend waiting for each other is not in this figure; overlap does not remove it.",
            gain_ns=gain.gain_ns if gain else round(worst["ns"]),
            gain_error_ns=gain.error_ns if gain else None,
            unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
            about=EXPOSED,
        )
    ]


def _hidden(gain: Gain | None) -> str:
    if gain is None:
        return ""
    shorter = f"at most {milliseconds(gain.gain_ns)} shorter" if gain.gain_ns else "no shorter"
    without = otherwise(gain.gain_ns, gain.unprofiled_gain_ns, gain.before_ns)
    return f" With all of it hidden a mean step is {shorter}{without}."


def low_bandwidth(collectives: Collectives, calls: Calls, replay: Replay, places: Places) -> list[Finding]:
    """Collectives of over 16 MiB whose transfer, waits aside, is below 30 % of what the links carry.

    The gain is that of the replay with all calls of the collective as much faster as takes these to 40 %. Ranks whose
    groups are slower than the others' are named, as a host or rack where they are one.
    """
    slow = slow_classes(collectives)
    # The best class of sizes of each group; the slowest group first.
    best = slow.sort_values("peak_pct").drop_duplicates(["group", "group_ranks", "collective"], keep="last")
    found = best.groupby("collective", observed=True)
    return [_slow(groups, collectives, calls, replay, places) for _, groups in found]


def _slow(groups: pd.DataFrame, collectives: Collectives, calls: Calls, replay: Replay, places: Places) -> Finding:
    """One collective, in one group or in several that do the same: a job of many nodes has hundreds."""
    rows = groups.to_dict("records")
    slowest, fastest = rows[0], rows[-1]
    who = "" if pd.isna(slowest["group_label"]) else f", {slowest['group_label']},"
    rate = f"{slowest['busbw_gbps']:.0f}"
    if len(rows) > 1:
        who = f" of {len(rows)} groups{who and f', slowest {who[2:]}'}"
        rate += f" to {most}" if (most := f"{fastest['busbw_gbps']:.0f}") != rate else ""
    slower = _slower_ranks(groups, collectives, places)
    of = {_identity(row) for row in rows}
    healthy = HEALTHY_PEAK * float(fastest["link_peak_gbps"])
    faster = Change("collective", min(float(fastest["busbw_gbps"]) / healthy, 1.0), name=str(slowest["collective"]))
    gain = gain_of(replay, faster)
    share = 100 * gain.gain_ns / gain.before_ns if gain and gain.before_ns else 0.0
    won = ""
    if gain and share >= LEAST_GAIN_PCT:
        won = f" At {healthy:.0f} GB/s, which healthy jobs reach, a mean step is {milliseconds(gain.gain_ns)} shorter."
    channels = few_channels(calls, slowest["collective"], slowest["group"])
    on = "" if channels is None else f" on {channels} channel{'' if channels == 1 else 's'}"
    return Finding(
        rule="low_bandwidth",
        severity=severity(share),
        title=f"Large {slowest['collective'].replace('_', '-')}s{who} reach {rate} GB/s{on}, "
        f"{slowest['peak_pct']:.0f} % of the links' {slowest['link_peak_gbps']} GB/s.{slower}{won}",
        gain_ns=gain.gain_ns if gain else None,
        gain_error_ns=gain.error_ns if gain else None,
        gain_is_bound=gain is None or gain.is_bound,
        unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
        evidence=tuple(row for row in collectives.rows() if _identity(row) in of),
        recommendation=f"{_CHANNELS if on else ''}Check the path that NCCL took (nvidia-smi topo -m, "
        "NCCL_DEBUG=INFO; analyze-traces doctor reads both), switches such as NCCL_P2P_DISABLE, and "
        "what else used the links or the GPU's memory at that time."
        f"{taken(slowest)}",
        caveat="The transfer is the shortest duration over ranks, so waits are not in it; compute that runs beside it "
        "slows it. The peak supposes NVLink between all ranks of the group, on one host.",
        about=slowness_of(slowest["collective"]),
    )


def _slower_ranks(groups: pd.DataFrame, collectives: Collectives, places: Places) -> str:
    """A sentence on the ranks whose groups take longest for a byte, if there is a set of them apart from the others."""
    slowest, frame = groups.iloc[0], collectives.to_frame()
    is_like = (frame["collective"] == slowest["collective"]) & (frame["size_class"] == slowest["size_class"])
    known = frame.loc[is_like, ["group_label", "group_ranks", "busbw_gbps"]].dropna()
    rows = [(_role(label), parsed(ranks) or (), rate) for label, ranks, rate in known.itertuples(index=False)]
    role, members = _role(slowest["group_label"]), len(parsed(slowest["group_ranks"]) or ())
    own = [(one, 1 / rate) for like, ranks, rate in rows if (like, len(ranks)) == (role, members) for one in ranks]
    if not own:
        return ""
    costs = pd.DataFrame(own, columns=["rank", "cost"]).groupby("rank")["cost"].max()
    slow = alike(costs, places)
    if slow.is_one or slow.others is None:
        return ""
    rates = f"{1 / costs[list(slow.ranks)].max():.0f} GB/s, the others {1 / slow.others:.0f}"
    return f" {slow.opening} reach {rates}: look at their links first."


def _role(label: object) -> str:
    """`data parallel` of `data parallel (ranks 0, 1)`."""
    return str(label).partition(" (")[0]


def _identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Which group and collective a row is of; equal also where the trace does not name a group."""
    return str(row["group"]), str(row["group_ranks"]), str(row["collective"])


def many_small_collectives(call_waits: CallWaits, headline: Headline, steps: Steps) -> list[Finding]:
    """Fifty collectives of at most 1 MiB a step or more: their latency adds up, to 1 % of a step at least."""
    calls = call_waits.table
    if calls.empty or not len(headline):
        return []
    is_small = (calls["size_bytes"] <= SMALL_BYTES).fillna(value=False) & calls["collective"].isin(_BUCKETED)
    small = calls[is_small & calls["step"].notna()]
    duration = small["end_ns"] - small["start_ns"]
    shortest = duration.groupby(small["instance"]).transform("min")
    moved = small["transfer_ns"].fillna(shortest).fillna(duration)
    by_step = moved.groupby([small["collective"], small["rank"], small["step"]]).agg(["size", "sum"])
    basis = Basis.of(headline, steps)
    if basis.steps is not None:
        by_step = by_step[by_step.index.get_level_values("step").isin(basis.numbers)]
    by_step["held"] = 1
    sums = by_step.groupby(["collective", "rank"]).sum()
    means = sums.assign(size=sums["size"] / sums["held"], sum=sums["sum"] / (basis.steps or sums["held"]))
    many = (
        means[means["size"] >= MANY_CALLS].reset_index().sort_values("size").drop_duplicates("collective", keep="last")
    )
    rows = [(row, 100 * row["sum"] / basis.mean_ns(row["rank"])) for row in many.to_dict("records")]
    return [_many_small(row, share_pct, basis) for row, share_pct in rows if share_pct >= SMALL_PCT]


def _many_small(row: dict[str, float], share_pct: float, basis: Basis) -> Finding:
    """Steps without any are told: the time is then of a mean step, the count of those that have some."""
    name = str(row["collective"]).replace("_", "-")
    is_in_all = basis.steps is None or row["held"] >= basis.steps
    when = "a step" if is_in_all else f"in each of {row['held']:.0f} of {basis.steps} steps"
    mean = "altogether" if is_in_all else "of a mean step"
    return Finding(
        rule="many_small_collectives",
        severity=severity(share_pct),
        title=f"Rank {row['rank']} runs {row['size']:.0f} {name}s of at most 1 MiB {when}, "
        f"{milliseconds(round(row['sum']))} {mean}.",
        evidence=(
            {"collective": row["collective"], "rank": int(row["rank"]), "calls_per_step": row["size"],
             "time_per_step_ns": round(row["sum"])},
        ),
        recommendation="Put them into buckets of some 25 MB, flatten the tensors, or coalesce the calls: a small "
        "collective costs its latency, whatever it carries.",
        caveat="Where they run under compute they cost launches rather than GPU time.",
        gain_ns=round(row["sum"]),
    )  # fmt: skip


def _per_step(exposed_comm: ExposedComm) -> pd.Series | None:
    """The rank with most exposed transfer a step: `rank`, `ns`, `window_ns`, `pct`; the capture's without steps."""
    table = exposed_comm.table
    if table.empty:
        return None
    complete = table[table["is_complete"].fillna(value=False).astype(bool)]
    held = complete if len(complete) else table[table["step"].isna()]
    means = held.groupby("rank")[["exposed_transfer_ns", "window_ns"]].mean().reset_index()
    means = means.rename(columns={"exposed_transfer_ns": "ns"})
    means = means.assign(pct=100 * means["ns"] / means["window_ns"].where(means["window_ns"] > 0))
    return means.sort_values("ns").iloc[-1]
