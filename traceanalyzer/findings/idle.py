"""Rules about idle GPUs: a late host, launch-bound kernels, synchronising calls, the data loader."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings.basis import Basis, about, mean_steps, milliseconds, per_step, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.names import short_name
from traceanalyzer.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC

HOST_PCT = 10.0
"""Idle time by the host in this share of a step is worth a finding."""

SYNC_PCT = 1.0
DATA_PCT = 2.0
SHORT_KERNELS_PCT = 50.0

_LAUNCH_FIGURES = (
    "kernels",
    "kernels_under_5us",
    "kernels_under_10us",
    "kernel_median_ns",
    "host_bound_pct",
    "queue_median",
)

_SYNC_FIGURES = ["calls", "host_ns", "idle_in_call_ns", "idle_after_ns", "cost_ns"]

_PROFILED = (
    "A profiler slows the host, most of all with stacks and shapes: compare with the step time without a profiler "
    "before you spend effort here."
)


def host_bound(headline: Result, steps: Result, idle: Result, gaps: Result) -> list[Finding]:
    """The host launches too late on at least one rank: idle by cause host over 10 % of a step."""
    worst = _worst(headline, steps, idle, HOST.column, HOST_PCT)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    own = basis.within(gaps.to_frame())
    own = own[(own["rank"] == rank) & (own["cause"] == HOST.key)]
    return [
        Finding(
            rule="host_bound",
            severity=severity(share),
            title=f"Rank {rank}'s host is late: rank {rank}'s GPU idles {milliseconds(cost_ns)}, {share:.0f} % "
            f"{basis.of_a_step}, before work that has not been launched yet.",
            evidence=_by_activity(own, basis),
            recommendation="Launch less or sooner: torch.compile or CUDA graphs for the repeated part, fused "
            "optimizers, a larger batch; move Python work and logging out of the step.",
            caveat=_PROFILED,
            gain_ns=round(cost_ns),
            interval_ns=_longest(own),
            table="gaps",
            about=about(HOST.key, rank),
            part_of=about(HOST.key, rank),
        )
    ]


def short_kernels(headline: Result, steps: Result, idle: Result, launches: Result) -> list[Finding]:
    """Half of the kernels are shorter than 10 µs, on a rank whose GPU waits for launches in over 10 % of a step."""
    worst = _worst(headline, steps, idle, HOST.column, HOST_PCT)
    if worst is None:
        return []
    rank, _, _, basis = worst
    row = launches.to_frame().astype("object").set_index("rank").loc[rank]
    share = row["kernels_under_10us_pct"]
    if pd.isna(share) or share < SHORT_KERNELS_PCT:
        return []
    parts = mean_steps(idle, basis, [LAUNCH.column, BETWEEN_KERNELS.column]).loc[rank]
    return [
        Finding(
            rule="short_kernels",
            severity="medium",
            title=f"{share:.0f} % of rank {rank}'s kernels run for less than 10 µs (median "
            f"{row['kernel_median_ns'] / 1e3:.1f} µs): the GPU finishes them faster than the host launches them.",
            evidence=({"rank": rank, **{name: _scalar(row[name]) for name in _LAUNCH_FIGURES}},),
            recommendation="Fuse small kernels (torch.compile, fused or foreach optimizers, fused norms and "
            "activations) or replay them as a CUDA graph.",
            caveat="Short kernels cost nothing while the launch queue is full.",
            gain_ns=round(float(parts.sum())),
            part_of=about(HOST.key, rank),
        )
    ]


def synchronising_calls(headline: Result, steps: Result, sync_calls: Result) -> list[Finding]:
    """Calls that wait for the GPU and let it run dry: over 1 % of a step; the worst of each rank."""
    if not len(sync_calls) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    places = ["rank", "name", "operator", "range"]
    table = basis.within(sync_calls.to_frame()).groupby(places, dropna=False)[_SYNC_FIGURES].sum().reset_index()
    table["share_pct"] = 100.0 * table["cost_ns"] / table["rank"].map(basis.window_ns)
    worst = table[table["share_pct"] >= SYNC_PCT].sort_values("share_pct", ascending=False).drop_duplicates("rank")
    return [_synchronising_call(row, basis) for _, row in worst.iterrows()]


def data_loader(headline: Result, steps: Result, idle: Result, gaps: Result) -> list[Finding]:
    """The GPU waits for the next batch: idle by cause data over 2 % of a step."""
    worst = _worst(headline, steps, idle, DATA.column, DATA_PCT)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    own = basis.within(gaps.to_frame())
    own = own[(own["rank"] == rank) & (own[DATA.column] > 0)]
    return [
        Finding(
            rule="data_loader",
            severity=severity(share),
            title=f"Rank {rank}'s GPU waits {milliseconds(cost_ns)} for data, {share:.1f} % {basis.of_a_step}.",
            evidence=_by_activity(own, basis),
            recommendation="Load ahead: more DataLoader workers, persistent workers, prefetch_factor, pinned memory "
            "with non_blocking copies; move decoding and augmentation off the training process.",
            caveat="Only ranges that name data loading count; work outside them is counted as the host's.",
            gain_ns=round(cost_ns),
            interval_ns=_longest(own),
            table="gaps",
            part_of=about(DATA.key, rank),
        )
    ]


def _worst(
    headline: Result, steps: Result, idle: Result, column: str, least_pct: float
) -> tuple[int, float, float, Basis] | None:
    """The rank with most of `column` in a mean step: rank, time, share; `None` when it is below `least_pct`."""
    if not len(headline) or not len(idle):
        return None
    basis = Basis.of(headline, steps)
    mean = mean_steps(idle, basis, [column, "window_ns"])
    if mean.empty:
        return None
    rank = int(mean[column].idxmax())
    cost_ns = float(mean.loc[rank, column])
    share = 100.0 * cost_ns / mean.loc[rank, "window_ns"] if cost_ns else 0.0
    return (rank, cost_ns, float(share), basis) if share >= least_pct else None


def _by_activity(gaps: pd.DataFrame, basis: Basis, most: int = 5) -> tuple[dict[str, Any], ...]:
    """What the host did for longest in these gaps, in a mean step."""
    groups = gaps.groupby("doing")
    table = pd.DataFrame({"gaps": groups.size(), "length_ns": groups["length_ns"].sum()})
    top = table.sort_values("length_ns", ascending=False).head(most).reset_index()
    return plain(per_step(top, ["gaps", "length_ns"], basis.steps))


def _longest(gaps: pd.DataFrame) -> tuple[int, int] | None:
    if gaps.empty:
        return None
    row = gaps.loc[gaps["length_ns"].astype("int64").idxmax()]
    return int(row["start_ns"]), int(row["end_ns"])


def _synchronising_call(row: pd.Series, basis: Basis) -> Finding:
    rank, cost_ns = int(row["rank"]), row["cost_ns"] / basis.per
    place = " in ".join(short_name(name) for name in (row["operator"], row["range"]) if not pd.isna(name))
    return Finding(
        rule="synchronising_calls",
        severity=severity(row["share_pct"]),
        title=f"{row['name']}{f' ({place})' if place else ''} lets rank {rank}'s GPU run dry for "
        f"{milliseconds(cost_ns)}, {row['share_pct']:.1f} % {basis.of_a_step} (calls: {row['calls'] / basis.per:.3g}).",
        evidence=plain(per_step(row.to_frame().T, _SYNC_FIGURES, basis.steps)),
        recommendation="Do not read GPU values on the host within a step (.item(), .cpu(), print, NaN checks): keep "
        "them on the GPU and read them every N steps; use pinned memory and non_blocking copies.",
        caveat="The time after the call counts too: it ends with the next launch, which other work may delay as well.",
        gain_ns=round(cost_ns),
        table="sync_calls",
        part_of=about(SYNC.key, rank),
    )


def _scalar(value: object) -> object:
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value
