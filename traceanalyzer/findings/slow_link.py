"""Slow links: transfers below the rate of other steps, or of the hardware.

Transfers of one group or pair reach a much lower bus bandwidth than the hardware, or than sister groups of the same
size.

**Why.** A path through PCIe or the CPU instead of NVLink, a degraded NIC, too few channels, or messages too small.

**Fix.** `nvidia-smi topo -m` and `NCCL_DEBUG=INFO`; `analyze-traces doctor` reads both and names the path. Check
`NCCL_P2P_DISABLE`, `NCCL_IB_HCA`, ACS and the container's `/dev/shm`.

**Measured.** NCCL limited to one channel, then as usual: 50.4 → 9.3 ms/step.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.clocks import hosts_of
from traceanalyzer.analyses.communication.collectives import SIZE_CLASSES, Collectives, transfer_kinds
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.replay.changes import USUAL, Change
from traceanalyzer.analyses.statistics import RATIO, SHARE, SIGMAS, deviation
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, numbers, time_text
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.vocabulary import listed, numbered

PLACE = "Communication", 3


def slow_link(run: Run, call_waits: CallWaits, collectives: Collectives, ranks: Ranks) -> Iterator[Finding]:
    """Transfers take longer than in other steps, or large ones within a host do not use NVLink: PCIe could carry them.

    The change is the transfers of the other steps, or half of NVLink's rate. Groups slower than sister groups are
    stragglers.
    """
    if call_waits.table.empty:
        return
    yield from _in_some_steps(run, run.within(call_waits.table))
    yield from _below_hardware(run, collectives.to_frame(), ranks.table)


def _in_some_steps(run: Run, calls: pd.DataFrame) -> Iterator[Finding]:
    """Collectives that move the same for longer in a few steps than in the others."""
    if run.steps is None:
        return
    once = calls[calls["transfer_ns"].notna()].drop_duplicates("instance")
    once = once.assign(kind=transfer_kinds(once["collective"]))
    for kind, own in once.groupby("kind"):
        steps = own.groupby("step").agg(count=("size_bytes", "size"), ns=("transfer_ns", "sum"))
        alike = steps.loc[steps["count"] == steps["count"].median(), "ns"].astype("float64")
        usual = alike.median()
        spread = max((RATIO - 1) * usual, SIGMAS * deviation(alike.to_numpy(dtype=np.float64)))
        slow = alike[alike > usual + spread]
        if not len(slow) or not run.is_worth((slow - usual).sum() / run.count):
            continue
        numbers_of = tuple(sorted(map(int, slow.index)))
        several = collectives_words(kind)
        yield Finding(
            headline=f"Slow links in {numbered('step', numbers_of)}: {several} take "
            f"{slow.mean() / usual:.3g}× their usual time.",
            why=f"They move the same data in each step, {time_text(round(slow.mean() - usual))} faster in the others.",
            fix="Look for what used the links then (a checkpoint over the network, another job), and for their error "
            "counters.",
            changes=(Change("collective", USUAL, steps=frozenset(numbers_of), name=str(kind)),),
            steps=numbers_of,
            table="call_waits",
        )


def _below_hardware(run: Run, collectives: pd.DataFrame, ranks: pd.DataFrame) -> Iterator[Finding]:
    """Large transfers that PCIe could carry, between GPUs of one host that have NVLink."""
    models = dict(zip(ranks["rank"], ranks["device_name"], strict=True))
    hosts = hosts_of(ranks)
    large = collectives[collectives["size_class"].isin(SIZE_CLASSES[3:5]) & collectives["link_peak_gbps"].notna()]
    within = [len({hosts.get(rank) for rank in numbers(text)}) == 1 for text in large["group_ranks"].fillna("")]
    large = large[np.array(within, dtype=bool)]
    gpus = large["rank"].map(models).map(gpu_of, na_action="ignore")
    pcie = pd.Series([gpu.pcie_gbps if gpu else None for gpu in gpus], large.index, dtype="Float64")
    best = large.assign(pcie=pcie, kind=transfer_kinds(large["collective"])).sort_values("busbw_gbps")
    best = best.drop_duplicates(["group", "group_ranks", "kind"], keep="last")
    is_slow = (best["busbw_gbps"] <= best["pcie"]) & (best["busbw_gbps"] < SHARE * best["link_peak_gbps"])
    for kind, own in best[is_slow.fillna(value=False)].groupby("kind"):
        if len(own) < (best["kind"] == kind).sum():
            continue
        row = own.iloc[-1]
        limit = SHARE * float(row["link_peak_gbps"])
        link = f" ({row['transport']})" if isinstance(row["transport"], str) else ""
        yield Finding(
            headline=f"Slow link: {collectives_words(kind)} reach {digits(round(float(row['busbw_gbps'])))} GB/s, "
            f"{run.terms.link} carries {row['link_peak_gbps']}.",
            why=f"Large transfers between ranks {listed(numbers(row['group_ranks']))}{link} are no faster than PCIe "
            f"({digits(float(row['pcie']))} GB/s).",
            fix=f"{run.terms.topology_command}; NCCL_DEBUG=INFO shows the transport; unset NCCL_P2P_DISABLE.",
            changes=(Change("collective", float(row["busbw_gbps"]) / limit, name=str(kind)),),
            named=numbers(row["group_ranks"]),
            table="collectives",
            caveat="It supposes that these ranks are on one host." if ranks["host"].isna().any() else "",
        )  # fmt: skip
