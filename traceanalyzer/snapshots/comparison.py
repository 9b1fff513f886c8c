"""Snapshots beside each other, of a job, and in sentences."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from traceanalyzer.analyses.memory import YES, Memory, MemoryFit, estimate, largest_batch, placed
from traceanalyzer.analyses.statistics import LEAST_PCT
from traceanalyzer.diff import Capture
from traceanalyzer.discovery.clustering import RUN_INFO
from traceanalyzer.errors import UsageError
from traceanalyzer.job.model_state import Model
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning.columns import Unit, size_text, unit_of
from traceanalyzer.meaning.vocabulary import named
from traceanalyzer.snapshots.examination import BEFORE, UNKNOWN, Examined, Growth, OutOfMemory

# What snapshots tell, in sentences; the costliest first.


_FIGURES = re.compile(r"(?<![:\w])\d[\d.,]*(?: [kMG]?B)?")
"""Amounts: neither numbers of lines nor parts of names."""


_WHO = "\0"
"""Stands for whose snapshot a sentence is of."""


def sentences(examined: Sequence[Examined]) -> list[str]:
    """Failed requests first, then who decides, growth, peaks and fragmentation; of each the rank with most first."""
    by_peak = sorted(examined, key=lambda one: -one.peak_bytes)
    alike: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for one in by_peak:
        for kind, text in _of_one(one):
            alike.setdefault((kind, _FIGURES.sub("", text)), []).append((text, one.snapshot.label))
    made = [(kind, _folded(same)) for (kind, _), same in alike.items()]
    most, least = (by_peak[0], by_peak[-1]) if by_peak else (None, None)
    if most and least and most.peak_bytes > 1.05 * least.peak_bytes:
        peaks = f"{size_text(most.peak_bytes)} at its peak ({least.snapshot.label}: {size_text(least.peak_bytes)})"
        made.append((_DECIDES, _capital(f"{most.snapshot.label} needs most memory: {peaks}.")))
    return [text for _, text in sorted(made, key=lambda one: one[0])]


def _folded(alike: Sequence[tuple[str, str]]) -> str:
    """What the first one's snapshot shows, and whose show the same, or the same with other figures."""
    (text, label), *others = alike
    said = _capital(text.replace(_WHO, label))
    same, unlike = ([own for other, own in others if (other == text) == is_same] for is_same in (True, False))
    for labels, how in ((same, "the same"), (unlike, "the same with other figures")):
        said += f" ({_capital(named(labels))}: {how}.)" if labels else ""
    return said


def _capital(text: str) -> str:
    """A rank at the start of a sentence; files keep their names."""
    return text[0].upper() + text[1:] if text.startswith("rank") else text


_CONTRADICTED, _FAILED, _DECIDES, _GROWS, _NOT_FAILED, _PEAK, _FRAGMENTED, _OTHERS = range(8)


def _of_one(one: Examined) -> list[tuple[int, str]]:
    made = list[tuple[int, str]]()
    if one.contradicted_bytes:
        text = (
            f"{_WHO}'s history and its final state disagree by {size_text(abs(one.contradicted_bytes))} at the peak: "
            "events or segments are missing, so the peak and its owners may be wrong."
        )
        made.append((_CONTRADICTED, text))
    made += [(_FAILED, _failed(one.oom))] if one.oom else []
    made += [(_GROWS, _grows(growth)) for growth in one.growths[:3]]
    if one.oom is None and one.growths:
        text = (
            f"{_WHO}'s history has no failed request. To see one, write the snapshot when it fails "
            "(torch._C._cuda_attach_out_of_memory_observer)."
        )
        made.append((_NOT_FAILED, text))
    made.append((_PEAK, _peak(one)))
    if one.end["reserved"] and one.free_bytes > 0.25 * one.end["reserved"]:
        made.append((_FRAGMENTED, _fragmented(one)))
    if others := ", ".join(f"{count:,} of GPU {device}" for device, count in one.snapshot.other_events.items()):
        made.append((_OTHERS, f"{_WHO}'s file also has events of other GPUs, which are ignored: {others}."))
    return made


def _failed(oom: OutOfMemory) -> str:
    reserved = size_text(max(oom.reserved_bytes - oom.allocated_before_bytes, 0))
    free = "" if oom.device_free_bytes is None else f", and the GPU had {size_text(oom.device_free_bytes)} left"
    return (
        f"{_WHO} ran out of memory at {_code(oom.site)}: it asked for {size_text(oom.requested_bytes)} while tensors "
        f"held {size_text(oom.allocated_before_bytes)}. {reserved} more was reserved in pieces that did not fit{free}."
    )


def _code(site: str) -> str:
    return site if site != UNKNOWN else "code without recorded frames"


def _grows(growth: Growth) -> str:
    each = size_text(growth.per_step_bytes)
    rate = f"{each} per step" if growth.is_by_steps else f"{each} in each eighth of the recorded time"
    unit = "steps" if growth.is_by_steps else "eighths"
    return (
        f"{_WHO}'s memory grows by {rate}: {size_text(growth.size_bytes)} in {growth.blocks:,} blocks from "
        f"{_code(growth.site)} is still allocated after {growth.steps} of {growth.of_steps} {unit}. Find what keeps "
        "it: a list, a cache, or the graph of a logged loss (loss.detach())."
    )


def _fragmented(one: Examined) -> str:
    of_graphs = (
        f" {size_text(one.free_private_bytes)} of it is in pools of CUDA graphs, which only those use."
        if one.free_private_bytes
        else ""
    )
    advice = " If it runs out of memory nevertheless: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    return (
        f"{_WHO} has reserved {size_text(one.end['reserved'])}, of which {size_text(one.free_bytes)} is free in "
        f"{one.free_blocks:,} blocks (largest {size_text(one.largest_free_bytes)}): usual between steps."
        f"{of_graphs}{'' if one.snapshot.settings.get('expandable_segments') else advice}"
    )


def _peak(one: Examined) -> str:
    largest = one.peak_categories.sort_values("size_bytes", ascending=False).head(4)
    largest_parts = zip(largest["category"], largest["size_bytes"], strict=True)
    parts = ", ".join(f"{category} {size_text(total)}" for category, total in largest_parts)
    text = f"{_WHO} peaks at {size_text(one.peak_bytes)}: {parts}."
    known = one.peak_sites[~one.peak_sites["site"].isin([UNKNOWN, BEFORE])]
    if not one.has_history:
        lacks = "who holds it" if known.empty else "what it held before"
        text = (
            f"{_WHO} held {size_text(one.peak_bytes)} when its snapshot was written; {lacks} is unknown, because no "
            "history was recorded. Call torch.cuda.memory._record_memory_history() before the first allocation "
            "(runners: --memory-snapshot)."
        )
    if known.empty:
        return text
    return f"{text} The largest part is from {known['site'].iloc[0]}: {size_text(int(known['size_bytes'].iloc[0]))}."


# Two runs' snapshots beside each other: what of each rank's peak is more or less, by category and by site.


PEAK, CATEGORY, SITE = "peak", "category", "site"

COLUMNS = ("rank", "of", "name", "base_bytes", "other_bytes", "change_bytes")


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A run's memory against the base's.

    Attributes:
        table: as `compared` gives it.
        sentences: what it tells.
    """

    table: pd.DataFrame
    sentences: tuple[str, ...]


def compared(base: Sequence[Examined], other: Sequence[Examined]) -> pd.DataFrame:
    """The peaks of ranks that both have, and what they are made of, as `joined_by_change` gives it."""
    return joined_by_change(_parts(base), _parts(other))


def _parts(examined: Sequence[Examined]) -> pd.DataFrame:
    """The peak of each snapshot, its categories and its sites: `rank`, `of`, `name`, `bytes`."""
    tables = [
        table.rename(columns={of: "name", "size_bytes": "bytes"}).assign(rank=one.snapshot.rank, of=of)
        for one in examined
        for of, table in (
            (PEAK, pd.DataFrame({PEAK: [PEAK], "size_bytes": one.peak_bytes})),
            (CATEGORY, one.peak_categories),
            (SITE, one.peak_sites),
        )
    ]
    return pd.concat(tables)[["rank", "of", "name", "bytes"]]


def joined_by_change(base: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Two runs' `rank`, `of` (PEAK, CATEGORY or SITE), `name` and `bytes` beside each other, of ranks that both have.

    Returns:
        `rank`, `of`, `name`, `base_bytes`, `other_bytes`, `change_bytes` (other less base), by rank and within it the
        largest change first; the changes by category, and those by site, add up to that of the peak.
    """
    keys = ["rank", "of", "name"]
    sides = [side.astype({"rank": "Int64"}).groupby(keys, dropna=False)["bytes"].sum() for side in (base, other)]
    both = pd.concat(sides, axis=1, keys=["base_bytes", "other_bytes"]).reset_index()
    is_shared = both["rank"].isin(base["rank"].astype("Int64")) & both["rank"].isin(other["rank"].astype("Int64"))
    table = (
        both[is_shared]
        .fillna({"base_bytes": 0, "other_bytes": 0})
        .astype({"base_bytes": "int64", "other_bytes": "int64"})
    )
    table["change_bytes"] = table["other_bytes"] - table["base_bytes"]
    order = table.assign(place=table["of"].map([PEAK, CATEGORY, SITE].index), size=-table["change_bytes"].abs())
    return table.loc[order.sort_values(["rank", "place", "size", "name"]).index, list(COLUMNS)].reset_index(drop=True)


def change(base: Sequence[Examined], other: Sequence[Examined]) -> MemoryChange:
    """What of each rank's peak is more or less, by the snapshots; and which ranks only one of the runs has."""
    table = compared(base, other)
    made = change_sentences(table)
    ranks = [{one.snapshot.label for one in side} for side in (base, other)]
    for here, others, where in ((ranks[0], ranks[1], "base"), (ranks[1], ranks[0], "other")):
        if alone := sorted(here - others):
            made.append(f"Only the {where} run has a snapshot of {named(alone)}.")
    return MemoryChange(table, tuple(made))


def change_sentences(table: pd.DataFrame) -> list[str]:
    """What a table as of `compared` tells, in sentences; ranks with the same sentence are one."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for rank, own in table.groupby("rank", dropna=False):
        alike.setdefault(text := _change(own), []).append((text, "the snapshot" if pd.isna(rank) else f"rank {rank}"))
    return [_folded(same) for same in alike.values()]


def _change(own: pd.DataFrame) -> str:
    peak = own[own["of"] == PEAK].iloc[0]
    least = LEAST_PCT / 100 * max(peak["base_bytes"], peak["other_bytes"])
    is_worth = own["change_bytes"].abs() >= max(least, 1)
    parts = [_named(own[(own["of"] == of) & is_worth].head(3)) for of in (CATEGORY, SITE)]
    base, other = (size_text(int(peak[name])) for name in ("base_bytes", "other_bytes"))
    text = f"goes from {base} to {other}" if peak["change_bytes"] else f"is {other}, as it was"
    return f"{_WHO}'s peak {': '.join(filter(None, (text, '; '.join(filter(None, parts)))))}."


def _named(rows: pd.DataFrame) -> str:
    changes = zip(rows["name"], rows["change_bytes"], strict=True)
    return ", ".join(f"{name} {'+' if size > 0 else '−'}{size_text(abs(size))}" for name, size in changes)


# What is known of a job of which there are memory snapshots and no traces: its run.json, gates, what would fit.


SOURCE = "memory snapshot"

_CAPACITY = re.compile(r"total capacity of (\d{1,9}(?:\.\d{1,9})?) ([GM])iB")
"""In PyTorch's message of a failed request."""

_ADVICE = "If reserved but unallocated"
"""Begins what PyTorch's message says to every failed request alike."""

_ENDS = {"oom": "ran out of memory", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class Job:
    """What is known beside the snapshots.

    Attributes:
        sentences: how the run ended, and what its model should take.
        memory: the ranks' peaks, as a report of traces has them.
        fit: what the model should take and what would fit; `None` where the model is not known.
        world: ranks of the job, as its run.json says.
    """

    sentences: tuple[str, ...]
    memory: Memory
    fit: MemoryFit | None
    world: int | None


def run_json(paths: Sequence[Path]) -> Path | None:
    """The run.json of these snapshots: in the folder that holds them all, or the one around it."""
    folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    return next((place / RUN_INFO for place in (folder, folder.parent) if (place / RUN_INFO).is_file()), None)


def job_of(examined: Sequence[Examined], info: RunInfo | None, model: Model | None, skipped: Sequence[str] = ()) -> Job:
    """What the run's own record and its model add to its snapshots; `skipped` are those that cannot be read."""
    error = (info.error or "") if info else ""
    device = (
        int(float(found[1]) * (1 << 30 if found[2] == "G" else 1 << 20)) if (found := _CAPACITY.search(error)) else None
    )
    memory = _memory(examined, device)
    peaks = memory.table["peak_allocated_bytes"].dropna()
    world = info.world_size if info else None
    fit = None
    if model is not None:
        count = world or len(examined) + len(skipped)
        model = placed(model, device, count)
        fit = estimate(model, device, count, int(peaks.max()) if len(peaks) else None)
    return Job((*_ended(info), *_expected(fit, model), *skipped), memory, fit, world)


def ranks(job: Job) -> pd.DataFrame:
    """`rank` and `world_size` of the snapshots, by which a gate knows that ranks are missing.

    Raises:
        UsageError: names of several files do not tell whose they are.
    """
    known = job.memory.table["rank"]
    if not known.is_unique:
        raise UsageError(
            "gates need to know whose each snapshot is: say the rank in the files' names, as in rank3_snapshot.pickle"
        )
    return pd.DataFrame({"rank": known, "world_size": job.world or int(known.max()) + 1})


def capture_of(examined: Sequence[Examined], info: RunInfo | None, label: str) -> Capture:
    """The ranks' peaks as a comparison's gates look at them.

    Raises:
        UsageError: names of several files do not tell whose they are.
    """
    job = job_of(examined, info, None)
    tables = {"memory": job.memory.to_frame(), "ranks": ranks(job)}
    return Capture(label, SOURCE, tables, steps=(), is_exact=True, info=info)


def _memory(examined: Sequence[Examined], device_bytes: int | None) -> Memory:
    """A row a snapshot; what only a history tells is absent without one."""
    rows = [
        {
            "rank": one.snapshot.rank or 0,
            "source": SOURCE,
            "events": len(one.snapshot.history),
            "allocated_bytes": one.end["allocated"],
            "peak_allocated_bytes": one.peak_allocated_bytes
            if one.has_history and not one.contradicted_bytes
            else None,
            "reserved_bytes": one.end["reserved"],
            "peak_reserved_bytes": max(int(one.levels["reserved_bytes"].max()), one.end["reserved"])
            if one.has_history
            else None,
            "device_bytes": device_bytes,
        }
        for one in examined
    ]
    sizes = dict.fromkeys((name for name in rows[0] if unit_of(name) is Unit.BYTES), "Int64")
    stored = [name for name in Memory.columns if name not in Memory.derived]  # a snapshot tells no moment or operator
    return Memory(pd.DataFrame(rows, columns=stored).astype(sizes))


def _ended(info: RunInfo | None) -> tuple[str, ...]:
    """How the run ended, where its run.json says that it did not end well."""
    if info is None or info.status not in _ENDS:
        return ()
    error = (info.error or "").partition(_ADVICE)[0].rstrip(" .")
    return (f"The run {_ENDS[info.status]}, as its run.json says{f': {error}' if error else ''}.",)


def _expected(fit: MemoryFit | None, model: Model | None) -> tuple[str, ...]:
    """What the run's own setting should take, and what would fit instead; nothing where totals are not known."""
    if fit is None or model is None:
        return ()
    table = fit.table[fit.table["total_bytes"].notna()]
    own, others = table[table["is_own"]], table[(table["fits"] == YES) & ~table["is_own"]]
    other = None if others.empty else _setting(others.iloc[0])
    if own.empty:
        return () if other is None else (f"By estimate {other} would fit.",)
    needed, device = int(own["total_bytes"].iloc[0]), own["device_bytes"].iloc[0]
    text = f"By estimate the model takes {size_text(needed)} on a GPU as it is trained"
    if pd.isna(device):
        return (f"{text} (--model gpu=80G adds what would fit).",)
    text = f"{text}, and a GPU has {size_text(int(device))}"
    if own["fits"].iloc[0] == YES:
        return (f"{text}: memory beyond it is not the model's.",)
    return (f"{text}: {_instead(model, other)}.",)


def _instead(model: Model, other: str | None) -> str:
    """What would fit: smaller micro-batches of what is trained first, as they change least."""
    ways = []
    for one, how in ((model, ""), (replace(model, checkpoint=True), "with activation checkpointing ")):
        if found := largest_batch(one):
            ways.append(f"{how}at a micro-batch of {found[0]} ({size_text(found[1])})")
    if ways:
        return f"it would fit {', or '.join(dict.fromkeys(ways))}"
    return f"{other} would fit" if other else "no other setting that is looked at fits"


def _setting(row: pd.Series) -> str:
    ways = [f"{name}={row[name]}" for name in ("tp", "pp") if row[name] > 1]
    ways += ["activation checkpointing"] if row["checkpointing"] else []
    setting = f"{row['strategy']}{' with ' + ' and '.join(ways) if ways else ''}"
    batch = "" if pd.isna(row["micro_batch"]) else f" at a micro-batch of {row['micro_batch']}"
    return f"{setting}{batch} needs {size_text(int(row['total_bytes']))} and"
