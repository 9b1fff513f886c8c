"""What snapshots tell, in sentences; the costliest first."""

import re
from collections.abc import Sequence

from traceanalyzer.meaning.quantities import size_text, time_text
from traceanalyzer.snapshots.examination import Examined, OutOfMemory
from traceanalyzer.snapshots.growth import Growth
from traceanalyzer.snapshots.sites import BEFORE, UNKNOWN

_FIGURES = re.compile(r"(?<![:\w])\d[\d.,]*(?: [kMG]?B)?")
"""Amounts: neither numbers of lines nor parts of names."""


def sentences(examined: Sequence[Examined]) -> list[str]:
    """Failed requests first, then who decides, growth, peaks and fragmentation; of each the rank with most first."""
    by_peak = sorted(examined, key=lambda one: -one.peak_bytes)
    told = [(kind, text, one.snapshot.label) for one in by_peak for kind, text in _of_one(one)]
    alike: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for kind, text, label in told:
        key = text.replace(capital(label), "", 1).replace(label, "", 1)
        alike.setdefault((kind, _FIGURES.sub("", key)), []).append((text, label))
    made = [(kind, folded(*said)) for (kind, _), said in alike.items()]
    most, least = (by_peak[0], by_peak[-1]) if by_peak else (None, None)
    if most and least and most.peak_bytes > 1.05 * least.peak_bytes:
        peaks = f"its peak is {size_text(most.peak_bytes)}, {least.snapshot.label}'s {size_text(least.peak_bytes)}"
        made.append((_DECIDES, f"{capital(most.snapshot.label)} decides: {peaks}."))
    return [text for _, text in sorted(made, key=lambda one: one[0])]


def folded(first: tuple[str, str], *others: tuple[str, str]) -> str:
    """What one rank's snapshot tells, and which others tell the same, or the same with other figures."""
    said, label = first
    plain = said.replace(capital(label), "", 1).replace(label, "", 1)
    ranks: dict[str, list[str]] = {"the same": [], "the same with other figures": []}
    for text, other in others:
        is_equal = text.replace(capital(other), "", 1).replace(other, "", 1) == plain
        ranks["the same" if is_equal else "the same with other figures"].append(other)
    for how, labels in ranks.items():
        if labels:
            named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
            said = f"{said} ({capital(named)}: {how}.)"
    return said


_CONTRADICTED, _FAILED, _DECIDES, _GROWS, _NOT_FAILED, _PEAK, _BESIDE, _FRAGMENTED, _OTHERS = range(9)


def _of_one(one: Examined) -> list[tuple[int, str]]:
    made = [(_CONTRADICTED, _contradicted(one))] if one.contradicted_bytes else []
    made += [(_FAILED, _failed(one.snapshot.label, one.oom))] if one.oom else []
    made += [(_GROWS, _grows(one.snapshot.label, growth)) for growth in one.growths[:3]]
    if one.oom is None and one.growths:
        made.append((_NOT_FAILED, _not_failed(one)))
    made.append((_PEAK, _peak(one)))
    made += [(_BESIDE, text) for text in _beside_trace(one)]
    if one.end["reserved"] and one.free_bytes > 0.25 * one.end["reserved"]:
        made.append((_FRAGMENTED, _fragmented(one)))
    if one.snapshot.other_events:
        made.append((_OTHERS, _other_devices(one)))
    return made


def _contradicted(one: Examined) -> str:
    return (
        f"{capital(one.snapshot.label)}'s history does not lead to what its snapshot holds at the end: "
        f"{size_text(abs(one.contradicted_bytes))} at the peak are in only one of them. Events or segments are "
        "missing, so that its peak and who holds it may be wrong."
    )


def _other_devices(one: Examined) -> str:
    others = ", ".join(f"{count:,} of GPU {device}" for device, count in one.snapshot.other_events.items())
    return (
        f"{capital(one.snapshot.label)}'s file has events of other GPUs of its process too, which are not looked at: "
        f"{others}."
    )


def _failed(label: str, oom: OutOfMemory) -> str:
    held = size_text(max(oom.reserved_bytes - oom.allocated_before_bytes, 0))
    free = "" if oom.device_free_bytes is None else f", and the GPU had {size_text(oom.device_free_bytes)} left"
    return (
        f"{capital(label)} ran out of memory at {_code(oom.site)}: it asked for {size_text(oom.requested_bytes)} while "
        f"tensors held {size_text(oom.allocated_before_bytes)}; {held} more were reserved, in pieces that did "
        f"not fit{free}."
    )


def _code(site: str) -> str:
    return site if site != UNKNOWN else "code of which no frames were recorded"


def _grows(label: str, growth: Growth) -> str:
    each = size_text(growth.per_step_bytes)
    rate = f"{each} a step" if growth.is_by_steps else f"{each} in each eighth of the recorded time"
    unit = "steps" if growth.is_by_steps else "eighths"
    who = _code(growth.site)
    return (
        f"{capital(label)}'s memory grows by {rate}: what {who} allocates is never freed, "
        f"{size_text(growth.size_bytes)} in {growth.blocks:,} blocks after {growth.steps} of {growth.of_steps} {unit}. "
        "Something keeps it: a list, a cache, the graph of a loss that is only logged (detach it). A snapshot has who "
        "allocates and not who keeps: follow what the named lines return to where it is stored."
    )


def _not_failed(one: Examined) -> str:
    """Of memory that grows without a failed request: where the next one is likely."""
    who = capital(one.snapshot.label)
    told = f"{who}'s history has no failed request"
    if not one.gave_back:
        told += (
            ", and its allocator gave nothing back to the GPU, as it would before it fails: none failed up to its end"
        )
    told += (
        ". If the run failed later, which request it was and what it asked for cannot be told: a snapshot that is "
        "written at that moment (torch._C._cuda_attach_out_of_memory_observer) has it"
    )
    if not one.taken:
        return f"{told}."
    first = one.taken[0]
    others = "only " if len(one.taken) == 1 else "above all "
    times = "once" if first.times == 1 else f"{first.times} times"
    return (
        f"{told}. In the second half of the history {others}{first.site} made it take more from the GPU, {times} and "
        f"{size_text(first.size_bytes)}: the first request without room is most likely there."
    )


def _fragmented(one: Examined) -> str:
    of_graphs = (
        f" {size_text(one.free_private_bytes)} of them lie in pools of CUDA graphs and serve only those."
        if one.free_private_bytes
        else ""
    )
    advice = (
        " If it runs out of memory with so much free, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: freed "
        "memory then serves requests of other sizes."
    )
    return (
        f"Of {one.snapshot.label}'s {size_text(one.end['reserved'])} reserved {size_text(one.free_bytes)} are free at "
        f"the snapshot's moment, in {one.free_blocks:,} blocks, the largest of {size_text(one.largest_free_bytes)}: "
        "usual between two steps, but a larger request needs new memory from the GPU."
        f"{of_graphs}{'' if one.snapshot.settings.get('expandable_segments') else advice}"
    )


def _beside_trace(one: Examined) -> list[str]:
    steps = one.trace_steps
    if steps is None:
        return []
    who = capital(one.snapshot.label)
    if steps.peak_step is not None:
        return [f"{who}'s peak lies in step {steps.peak_step} of the trace."]
    if steps.before_ns is not None:
        return [f"{who}'s history ends {time_text(steps.before_ns)} before the trace's first step: it holds none."]
    return [] if steps.table.empty else [f"{who}'s peak lies outside the steps of the trace."]


def _peak(one: Examined) -> str:
    largest = one.peak_categories.sort_values("size_bytes", ascending=False).head(4)
    named = zip(largest["category"], largest["size_bytes"], strict=True)
    parts = ", ".join(f"{category} {size_text(total)}" for category, total in named)
    told = f"{capital(one.snapshot.label)} peaks at {size_text(one.peak_bytes)} in use: {parts}."
    known = one.peak_sites[~one.peak_sites["site"].isin([UNKNOWN, BEFORE])]
    if not one.has_history:
        lacks = "by whom is not known" if known.empty else "what it held before is not known"
        told = (
            f"{capital(one.snapshot.label)} held {size_text(one.peak_bytes)} when its snapshot was written, {lacks}: "
            "no history was recorded. Call torch.cuda.memory._record_memory_history() before the first "
            "allocation (the runners' --memory-snapshot)."
        )
    if known.empty:
        return told
    return f"{told} The line with most is {known['site'].iloc[0]}: {size_text(int(known['size_bytes'].iloc[0]))}."


def capital(text: str) -> str:
    """A rank at the start of a sentence; files keep their names."""
    return text[0].upper() + text[1:] if text.startswith("rank") else text
