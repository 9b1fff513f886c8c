"""What monitors of a running job wrote: NCCL Inspector, NCCL RAS, xpu_timer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from traceanalyzer.discovery.candidates import all_below
from traceanalyzer.doctor.case import Diagnosis
from traceanalyzer.errors import InputError
from traceanalyzer.files import whole as files_whole
from traceanalyzer.meaning.columns import size_text, time_text
from traceanalyzer.meaning.vocabulary import numbered
from traceanalyzer.model.schema import printable

_COLUMNS = {
    "communicator": "header.id", "rank": "header.rank", "ranks": "header.n_ranks", "nodes": "header.nnodes",
    "host": "metadata.hostname", "collective": "coll_perf.coll", "number": "coll_perf.coll_sn",
    "size_bytes": "coll_perf.coll_msg_size_bytes", "duration_ns": "coll_perf.coll_exec_time_us",
    "algbw_gb_per_s": "coll_perf.coll_algobw_gbs", "busbw_gb_per_s": "coll_perf.coll_busbw_gbs",
    "dumped_ns": "metadata.dump_timestamp_us",
}  # fmt: skip
"""Column → where a record has it."""


@dataclass(frozen=True, slots=True)
class Inspector:
    """What the Inspector recorded.

    Attributes:
        calls: one row for each call of a rank: `communicator`, `rank`, `ranks`, `nodes`, `host`, `collective`,
            `number` (of the collective in its communicator), `size_bytes`, `duration_ns`, `algbw_gb_per_s`,
            `busbw_gb_per_s`, `dumped_ns`.
        files: how many were read.
        notes: what could not be.
    """

    calls: pd.DataFrame
    files: int
    notes: tuple[str, ...] = ()


def read_inspector(folder: Path, *, follows_links: bool = False) -> Inspector:
    """Read the Inspector's JSON: one object after the other, or one a line, in all files below a folder.

    Raises:
        InputError: no file holds a record of a collective.
    """
    rows, used, notes = _read_all(folder, _calls_in, "the Inspector's JSON", follows_links)
    if not rows:
        raise InputError(f"{folder}: no record of NCCL Inspector in it{': ' + notes[0] if notes else ''}")
    return Inspector(pd.DataFrame(rows), used, tuple(notes))


def _read_all(
    place: Path, rows_of: Callable[[Path], list[Any]], what: str, follows_links: bool
) -> tuple[list[Any], int, list[str]]:
    """Rows of a file, or of all files below a folder; how many files have some; which cannot be read, and why."""
    rows, notes, used = [], [], 0
    for path in all_below(place, follows_links=follows_links) if place.is_dir() else [place]:
        try:
            found = rows_of(path)
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            notes.append(f"{path}: not {what} ({error})")
            continue
        used += bool(found)
        rows += found
    return rows, used, notes


_MOST_BYTES = 4 << 30


def _calls_in(path: Path) -> list[dict[str, Any]]:
    found = [{name: _field(record, place) for name, place in _COLUMNS.items()} for record in _objects(path)
             if isinstance(record, dict) and isinstance(record.get("coll_perf"), dict)]  # fmt: skip
    return [row for row in found if row["rank"] is not None]


def _objects(path: Path) -> Iterator[Any]:
    """The objects of a file: a line each, else laid out over several lines; a cut last one is left out."""
    lines = files_whole.content(path, _MOST_BYTES).decode("utf-8").splitlines()
    start = 0
    for number, line in enumerate(lines):
        if line.rstrip() in {"}", "},"} or (line.startswith("{") and line.rstrip().endswith("}")):
            try:
                yield msgspec.json.decode("\n".join(lines[start : number + 1]).strip().rstrip(","))
            except (msgspec.DecodeError, RecursionError):
                continue  # a closing brace inside an object: it goes on
            start = number + 1


_TEXTS = ("id", "hostname", "coll")
_REAL = ("_us", "_gbs")


def _field(record: dict[str, Any], place: str) -> Any:
    """What a record has in a place; a number only where it can be meant: not negative, and small enough for a table."""
    part, name = place.split(".")
    value = held.get(name) if isinstance(held := record.get(part), dict) else None
    if name in _TEXTS:
        return printable(str(value)) if value is not None or name != "hostname" else None
    is_real = name.endswith(_REAL)
    if isinstance(value, bool) or not isinstance(value, int | float if is_real else int) or not 0 <= value < 1 << 52:
        return None
    return round(value * 1000) if name.endswith("_us") else value


def last_arrivals(inspector: Inspector) -> pd.DataFrame:
    """How often each rank came last to a collective, and how long the others waited for it.

    A collective's kernel spins until its last rank arrives, so the rank with the shortest duration came last; the
    others waited their duration less that one. Of collectives that at least two ranks recorded.

    Returns:
        One row for each communicator and rank: `calls` compared, `last` of them in which it came last, `last_pct`,
        `caused_wait_ns` (mean over the others, summed over collectives), `wait_ns` that it waited itself.
    """
    calls = inspector.calls.dropna(subset=["number", "duration_ns"])
    keys = ["communicator", "collective", "number"]
    calls = calls.drop_duplicates([*keys, "rank"])
    grouped = calls.groupby(keys)["duration_ns"]
    calls = calls.assign(
        recorded=grouped.transform("size"), shortest_ns=grouped.transform("min"), total_ns=grouped.transform("sum")
    )
    calls = calls[calls["recorded"] > 1]
    wait = (calls["duration_ns"] - calls["shortest_ns"]).astype("int64")
    is_last = wait == 0
    caused = (calls["total_ns"] - calls["recorded"] * calls["shortest_ns"]) / (calls["recorded"] - 1)
    table = calls.assign(wait_ns=wait, last=is_last, caused_wait_ns=caused.where(is_last, 0))
    made = table.groupby(["communicator", "rank"], as_index=False).agg(
        calls=("number", "size"), last=("last", "sum"), caused_wait_ns=("caused_wait_ns", "sum"),
        wait_ns=("wait_ns", "sum"),
    )  # fmt: skip
    made["caused_wait_ns"] = made["caused_wait_ns"].round().astype("int64")
    made["last_pct"] = 100 * made["last"] / made["calls"]
    return made.sort_values("caused_wait_ns", ascending=False, ignore_index=True)


def bandwidth(inspector: Inspector) -> pd.DataFrame:
    """Bus bandwidth by communicator, collective and size: calls, median, lowest tenth; of the slowest rank's figures.

    The lowest figure of a collective's ranks counts the wait for the last; the highest is the transfer's.
    """
    calls = inspector.calls.dropna(subset=["busbw_gb_per_s", "size_bytes"])
    best = calls.groupby(["communicator", "ranks", "collective", "size_bytes", "number"], dropna=False, as_index=False)[
        "busbw_gb_per_s"
    ].max()
    grouped = best.groupby(["communicator", "ranks", "collective", "size_bytes"], dropna=False)["busbw_gb_per_s"]
    made = grouped.agg(calls="size", median_gb_per_s="median", low_gb_per_s=lambda rate: rate.quantile(0.1))
    return made.reset_index().sort_values(["size_bytes", "calls"], ascending=False, ignore_index=True)


_TROUBLE = re.compile(r"^#(\d{1,9})-(\d{1,9}) \((\w+)\) ([A-Z,]+)\s*$")
_RAS_RANK = re.compile(r"^\s+(?:The missing rank: (\d{1,9})|Rank (\d{1,9})\b.*)$")
_RAS_GROUP = re.compile(r"^ +\d+ +\d+ +\S+ +\S+ +(?:\d+-)?(\d{1,9}) +\d+ +([A-Z]+) +(\S+)", re.MULTILINE)
_COUNTS = re.compile(r"^\s+(\d{1,9}) ranks? ha(?:ve|s) launched up to operation (\d{1,9})")
_OPERATION = re.compile(r"have different (\w+) operation counts")


@dataclass(frozen=True, slots=True)
class RasTrouble:
    """One communicator, or the job, that RAS reports as not in order.

    Attributes:
        communicator: its id; `None` for the job's processes.
        status: `INCOMPLETE`, `MISMATCH`, `ERROR`, …
        operation: the collective whose counts differ, where known.
        counts: (ranks, operations that they have launched).
        ranks: ranks that it lists.
        details: its lines, as printed.
    """

    communicator: str | None
    status: str
    operation: str | None
    counts: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RasReport:
    """What one query of RAS printed: `states` of its groups of communicators (`RUNNING`), `ranks` of the largest."""

    troubles: tuple[RasTrouble, ...]
    nccl_version: str | None
    states: tuple[str, ...] = ()
    ranks: int = 0


def is_ras(text: str) -> bool:
    """Whether a text is the output of `ncclras`."""
    return "Job summary" in text and "Communicators..." in text


def parse_ras(text: str, name: str = "ras") -> RasReport:
    """Read the output of `ncclras`.

    Raises:
        InputError: it is something else.
    """
    if not is_ras(text):
        raise InputError(f"{name}: not the output of ncclras")
    found: list[tuple[str | None, str, list[str]]] = []
    lines = text.splitlines()
    for line in lines:
        if head := _TROUBLE.match(line):
            found.append((head[3], head[4], []))
        elif line.strip() in {"INCOMPLETE", "DEAD", "ERROR", "MISMATCH"} and not line.startswith(" "):
            found.append((None, line.strip(), []))
        elif found and line.startswith("  "):
            found[-1][2].append(line)
    version = re.search(r"NCCL version (\S+)", text)
    groups = _RAS_GROUP.findall(text)
    return RasReport(
        tuple(_trouble(*one) for one in found),
        version[1] if version else None,
        tuple(state if errors == "OK" else errors for _, state, errors in groups),
        max((int(ranks) for ranks, _, _ in groups), default=0),
    )


def _trouble(communicator: str | None, status: str, lines: list[str]) -> RasTrouble:
    ranks = [int(match[1] or match[2]) for line in lines if (match := _RAS_RANK.match(line))]
    counts = [(int(match[1]), int(match[2])) for line in lines if (match := _COUNTS.match(line))]
    named = next((match[1] for line in lines if (match := _OPERATION.search(line))), None)
    return RasTrouble(communicator, status, named, tuple(counts), tuple(ranks), tuple(line.strip() for line in lines))


_SAMPLE = re.compile(
    r"^(XPU_TIMER_[A-Z0-9_]+)\{([^}]*)\}\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])",
    re.MULTILINE | re.ASCII,
)
_RANK = re.compile(r"\d{1,9}", re.ASCII)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_PREFIXES = {"collective": "XPU_TIMER_COLL_KERNEL_", "product": "XPU_TIMER_MM_KERNEL_", "common": "XPU_TIMER_COMMON_"}

_SERIES = ("operation", "dtype", "algorithm", "transport", "level", "small")
"""What tells one series of a rank from another; `level` is a class of throughput, not of size."""

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
    rows, used, notes = _read_all(place, _rows, "a text of metrics", follows_links)
    if not rows:
        why = f": {notes[0]}" if notes else ""
        raise InputError(
            f"{place}: no figure of xpu_timer in it{why}; save its metrics, curl 127.0.0.1:18889/metrics > metrics.txt"
        )
    return XpuTimer(pd.DataFrame(rows), used, tuple(notes))


def _rows(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, text, value in _SAMPLE.findall(files_whole.content(path, _MOST_BYTES).decode("utf-8")):
        labels = {key: printable(label) for key, label in _LABEL.findall(text)}
        of = next((of for of, prefix in _PREFIXES.items() if name.startswith(prefix)), None)
        if of is None or not _RANK.fullmatch(labels.get("rank", "")) or not isfinite(float(value)):
            continue
        host = next((labels[key] for key in ("pod_name", "ip") if labels.get(key) not in (None, "", "NOT_SET")), None)
        rows.append({"file": path.name, "of": of, "metric": name.removeprefix(_PREFIXES[of]),
                     "rank": int(labels["rank"]), "host": host,
                     **{key: labels.get(key) for key in _SERIES}, "value": float(value)})  # fmt: skip
    return rows


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


def often_last(inspector: Inspector) -> list[Diagnosis]:
    """A rank that comes last to most collectives of a communicator of more than two, and makes the others wait."""
    late = last_arrivals(inspector)
    if late.empty:
        return []
    total = inspector.calls.groupby("communicator")["duration_ns"].sum()
    members = late.groupby("communicator")["rank"].transform("size")
    share = 100 * late["caused_wait_ns"] * (members - 1) / late["communicator"].map(total)
    found = late[(late["last_pct"] >= 50) & (late["calls"] >= 20) & (share >= 5)]
    return [
        Diagnosis(
            diagnosis=f"Rank {rank} of communicator {communicator} arrives last at {pct:.0f}% of its collectives: the "
            f"others "
            f"wait {time_text(caused / calls)} for it in each. Profile this rank next, and one of the others.",
            signal=f"{last:,} of {calls:,} collectives; the rank with the shortest duration arrives last.",
            recommendation=f"Record a trace of rank {rank} and of one other rank, and give both to analyze-traces.",
            ranks=(int(rank),),
        )
        for communicator, rank, calls, last, caused, _, pct in found.itertuples(index=False)
    ]


def bandwidth_drops(inspector: Inspector) -> list[Diagnosis]:
    """Collectives of one size whose slowest tenth reaches less than half of the median bandwidth."""
    table = bandwidth(inspector)
    big = table[(table["calls"] >= 50) & (table["size_bytes"] >= 1 << 20)]
    found = big[big["low_gb_per_s"] < 0.5 * big["median_gb_per_s"]]
    return [
        Diagnosis(

            diagnosis=f"{collective} of {size_text(size)} in communicator {communicator} reaches {median:.1f} GB/s "
            f"as a rule (median), but at most {low:.1f} GB/s in a tenth of its calls.",
            signal=f"{calls:,} calls; bus bandwidth of the fastest rank of each, so that waiting does not count.",


        )
        for communicator, collective, size, calls, median, low in zip(
            found["communicator"], found["collective"], found["size_bytes"], found["calls"], found["median_gb_per_s"],
            found["low_gb_per_s"], strict=True,
        )
    ][:5]  # fmt: skip


def ras_troubles(ras: RasReport) -> list[Diagnosis]:
    """What RAS reports as incomplete or mismatching."""
    made = []
    for trouble in ras.troubles:
        where = f"communicator {trouble.communicator}" if trouble.communicator else "the job"
        counts = sorted(trouble.counts, key=lambda pair: pair[1])
        if len(counts) > 1:
            who = f" ({numbered('rank', trouble.ranks)} are the ones it lists)" if trouble.ranks else ""
            operation = f"{trouble.operation} " if trouble.operation else ""
            told = (
                f"Ranks of {where} are not in step: {counts[0][0]} have launched {operation}operation {counts[0][1]} "
                f"at most, "
                f"{counts[-1][0]} operation {counts[-1][1]}{who}."
            )
        elif trouble.ranks:
            told = f"RAS lacks {numbered('rank', trouble.ranks)} of {where} ({trouble.status.lower()})."
        else:
            told = (
                f"RAS reports {where} as {trouble.status.lower()}: {'; '.join(trouble.details[:3])}".strip(": ") + "."
            )
        made.append(
            Diagnosis(
                severity="medium" if trouble.status == "MISMATCH" else "high",
                diagnosis=told,
                signal="; ".join(trouble.details[:6]) or trouble.status,
                ranks=trouble.ranks,
            )
        )
    return made


def reported_hang(xpu_timer: XpuTimer) -> Iterator[Diagnosis]:
    """Ranks whose kernels did not end within xpu_timer's limit."""
    if ranks := hanging(xpu_timer):
        yield Diagnosis(
            f"xpu_timer reports a hang on {numbered('rank', ranks)}: a product or a collective did not end within its "
            "limit (300 s unless set otherwise).",
            ranks=tuple(ranks),
        )


def _beside_others(
    metrics: XpuTimer, of: Literal["collective", "product"], figure: str, most: float
) -> list[tuple[int, str]]:
    """Ranks whose figure is at most so much of the other ranks', and what percent it is; the lowest five."""
    shares = against_others(series(metrics, of), figure)
    return [(int(rank), f"{100 * share:.0f}%") for rank, share in shares[shares <= most].sort_values().items()][:5]


def waited_for(xpu_timer: XpuTimer) -> list[Diagnosis]:
    """A rank whose collectives are much shorter than the other ranks' of the same series: it comes last."""
    return [
        Diagnosis(
            diagnosis=f"Rank {rank}'s collectives take {share} of the other ranks' time: a collective spins until its "
            "last rank arrives, so the others wait for it. Profile this rank next, and one of the others.",
            recommendation=f"Record a trace of rank {rank} and of one other rank, and give both to analyze-traces.",
            ranks=(rank,),
        )
        for rank, share in _beside_others(xpu_timer, "collective", "avg_us", 0.7)
    ]


def slow_products(xpu_timer: XpuTimer) -> list[Diagnosis]:
    """A rank whose matrix products run slower than the other ranks' of the same series."""
    return [
        Diagnosis(
            diagnosis=f"Rank {rank}'s matrix products reach {share} of the other ranks' speed: its GPU is slower.",
            ranks=(rank,),
        )
        for rank, share in _beside_others(xpu_timer, "product", "tflops", 0.9)
    ]
