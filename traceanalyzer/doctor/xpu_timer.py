"""xpu_timer's metrics (what its port 18889 answers, saved): collectives, products and hangs of every rank."""

import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Literal

import pandas as pd

from traceanalyzer.discovery.candidates import all_below
from traceanalyzer.errors import InputError
from traceanalyzer.files import bounded
from traceanalyzer.model.schema import printable

_SAMPLE = re.compile(
    r"^(XPU_TIMER_[A-Z0-9_]+)\{([^}]*)\}\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])",
    re.MULTILINE | re.ASCII,
)
_RANK = re.compile(r"\d{1,9}", re.ASCII)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_COLLECTIVE, _PRODUCT, _COMMON = "XPU_TIMER_COLL_KERNEL_", "XPU_TIMER_MM_KERNEL_", "XPU_TIMER_COMMON_"

_SERIES = ("operation", "dtype", "algorithm", "transport", "level", "small")
"""What tells one series of a rank from another; `level` is a class of throughput, not of size."""

_MOST_BYTES = 1 << 28

_BITS = 8


@dataclass(frozen=True, slots=True)
class XpuTimer:
    """What was saved of it.

    Attributes:
        samples: one row for each figure: `file`, `metric` (without its prefix), `of` (`collective`, `product` or
            `common`), `rank`, `host` (pod, else address; absent when it says NOT_SET), `operation`, `dtype`,
            `algorithm`, `transport`, `level`, `small`, `value` (latencies in µs, bandwidth in Gbit/s, products in
            TFLOPS).
        files: how many were read.
        notes: what could not be.
    """

    samples: pd.DataFrame
    files: int
    notes: tuple[str, ...] = ()


def read_xpu_timer(place: Path, *, follows_links: bool = False) -> XpuTimer:
    """Read saved answers of the metrics port: a text, or all texts below a folder (one a host, or one a time).

    Raises:
        InputError: there is no figure of xpu_timer in them.
    """
    files = all_below(place, follows_links=follows_links) if place.is_dir() else [place]
    rows, notes, used = [], [], 0
    for path in files:
        try:
            found = _rows(path)
        except (OSError, UnicodeDecodeError) as error:
            notes.append(f"{path}: not a text of metrics ({error})")
            continue
        used += bool(found)
        rows += found
    if not rows:
        why = f": {notes[0]}" if notes else ""
        raise InputError(
            f"{place}: no figure of xpu_timer in it{why}; save its metrics, curl 127.0.0.1:18889/metrics > metrics.txt"
        )
    return XpuTimer(pd.DataFrame(rows), used, tuple(notes))


def _rows(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, text, value in _SAMPLE.findall(bounded.content(path, _MOST_BYTES).decode("utf-8")):
        labels = {key: printable(label) for key, label in _LABEL.findall(text)}
        of, metric = _of(name)
        if of is None or not _RANK.fullmatch(labels.get("rank", "")) or not isfinite(float(value)):
            continue
        told = {key: labels.get(key) for key in _SERIES}
        host = next((labels[key] for key in ("pod_name", "ip") if labels.get(key) not in (None, "", "NOT_SET")), None)
        rows.append({"file": path.name, "of": of, "metric": metric, "rank": int(labels["rank"]), "host": host,
                     **told, "value": float(value)})  # fmt: skip
    return rows


def _of(name: str) -> tuple[str | None, str]:
    for prefix, of in ((_COLLECTIVE, "collective"), (_PRODUCT, "product"), (_COMMON, "common")):
        if name.startswith(prefix):
            return of, name.removeprefix(prefix)
    return None, name


def hanging(metrics: XpuTimer) -> list[int]:
    """Ranks that report a hang in any of the answers."""
    samples = metrics.samples
    found = samples[(samples["of"] == "common") & (samples["metric"] == "HANG") & (samples["value"] > 0)]
    return sorted(int(rank) for rank in found["rank"].unique())


def series(metrics: XpuTimer, of: Literal["collective", "product"]) -> pd.DataFrame:
    """One row for each rank and series, the median over the answers.

    Of collectives `avg_us`, `min_us`, `max_us`, `p99_us` and `bandwidth_gbps` (decimal GB/s); of products the same with
    `tflops` instead. Columns that a figure lacks are absent.
    """
    samples = metrics.samples[metrics.samples["of"] == of]
    if samples.empty:
        return pd.DataFrame()
    keys = ["rank", *_SERIES]
    plain = samples.assign(**samples[list(_SERIES)].fillna(""))
    table = plain.pivot_table(index=keys, columns="metric", values="value", aggfunc="median").reset_index()
    names = {f"{what}_LATENCY": f"{what.lower()}_us" for what in ("AVG", "MIN", "MAX", "P99")}
    table = table.rename(columns={**names, "BANDWIDTH": "bandwidth_gbps", "FLOPS": "tflops"})
    if "bandwidth_gbps" in table:
        table["bandwidth_gbps"] /= _BITS
    return table.rename_axis(columns=None)


def against_others(table: pd.DataFrame, figure: str) -> pd.Series:
    """By rank the median over its series of its figure over the other ranks' median of the same series.

    Of series that at least three ranks have.
    """
    if table.empty or figure not in table:
        return pd.Series(dtype="float64")
    wide = table.pivot_table(index=list(_SERIES), columns="rank", values=figure)
    wide = wide[wide.notna().sum(axis=1) >= 3]
    ratios = {rank: (wide[rank] / wide.drop(columns=rank).median(axis=1)).median() for rank in wide}
    return pd.Series(ratios, dtype="float64").dropna()
