"""What snapshots tell, in sentences; the costliest first."""

from collections.abc import Sequence

from traceanalyzer.snapshots.examination import Examined, OutOfMemory
from traceanalyzer.snapshots.growth import Growth
from traceanalyzer.snapshots.sites import BEFORE, UNKNOWN


def sentences(examined: Sequence[Examined]) -> list[str]:
    """Failed requests, growth, who decides, peak and fragmentation."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for one in examined:
        for sentence in _of_one(one):
            key = sentence.replace(_capital(one.snapshot.label), "", 1)
            alike.setdefault(key, []).append((sentence, one.snapshot.label))
    made = [_folded(*said) for said in alike.values()]
    if len(examined) > 1:
        most, least = (pick(examined, key=lambda one: one.peak_bytes) for pick in (max, min))
        if most.peak_bytes > 1.05 * least.peak_bytes:
            made.append(
                f"{_capital(most.snapshot.label)} decides: its peak is {size(most.peak_bytes)}, "
                f"{least.snapshot.label}'s {size(least.peak_bytes)}."
            )
    return made


def _folded(first: tuple[str, str], *others: tuple[str, str]) -> str:
    """What one rank's snapshot tells, and which others tell the same."""
    labels = [label for _, label in others]
    if not labels:
        return first[0]
    named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
    return f"{first[0]} ({_capital(named)}: the same.)"


def _of_one(one: Examined) -> list[str]:
    made = [] if one.oom is None else [_failed(one.snapshot.label, one.oom)]
    made += [_grows(one.snapshot.label, growth) for growth in one.growths[:3]]
    made.append(_peak(one))
    made += _beside_trace(one)
    if one.end["reserved"] and one.free_bytes > 0.25 * one.end["reserved"]:
        made.append(_fragmented(one))
    if one.oom is None and one.growths:
        made.append(
            f"{_capital(one.snapshot.label)}'s history has no out-of-memory event: which request failed, if one did, "
            "cannot be told from it."
        )
    return made


def _failed(label: str, oom: OutOfMemory) -> str:
    held = size(oom.reserved_bytes - oom.requested_before_bytes)
    free = "" if oom.device_free_bytes is None else f", and the GPU had {size(oom.device_free_bytes)} left"
    return (
        f"{_capital(label)} asked for {size(oom.requested_bytes)} in vain at {oom.site}: "
        f"{size(oom.requested_before_bytes)} were in use, {held} more reserved in pieces that did not fit{free}."
    )


def _grows(label: str, growth: Growth) -> str:
    each, of_all = size(growth.per_step_bytes), f"{growth.steps} of {growth.of_steps}"
    rate = f"{each} a step" if growth.is_by_steps else f"{each} in each equal part of the recorded time"
    unit = "steps" if growth.is_by_steps else "parts"
    return (
        f"{_capital(label)} keeps what {growth.site} allocates: {rate}, {growth.blocks:,} blocks and "
        f"{size(growth.size_bytes)} in {of_all} {unit}, never freed. Something there holds on to it: a list, a cache, "
        "a graph that is kept (detach what is only logged). A snapshot has who allocates, not who keeps: of the lines "
        "named look for the one that stores the result."
    )


def _fragmented(one: Examined) -> str:
    advice = " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets freed memory serve requests of other sizes."
    told = f"{size(one.free_bytes)} of {size(one.end['reserved'])} reserved are not in use"
    return (
        f"{_capital(one.snapshot.label)} at the end: {told}, in {one.free_blocks:,} blocks of which the largest has "
        f"{size(one.largest_free_bytes)}: a larger request needs new memory from the GPU."
        f"{'' if one.snapshot.settings.get('expandable_segments') else advice}"
    )


def _beside_trace(one: Examined) -> list[str]:
    steps = one.trace_steps
    if steps is None:
        return []
    who = _capital(one.snapshot.label)
    if steps.peak_step is not None:
        return [f"{who}'s peak lies in step {steps.peak_step} of the trace."]
    if steps.before_ns is not None:
        return [f"{who}'s history ends {steps.before_ns / 1e6:,.0f} ms before the trace's first step: it holds none."]
    return [] if steps.table.empty else [f"{who}'s peak lies outside the steps of the trace."]


def _peak(one: Examined) -> str:
    largest = one.peak_categories.sort_values("size_bytes", ascending=False).head(4)
    named = zip(largest["category"], largest["size_bytes"], strict=True)
    parts = ", ".join(f"{category} {size(total)}" for category, total in named)
    told = f"{_capital(one.snapshot.label)} peaks at {size(one.peak_bytes)} in use: {parts}."
    known = one.peak_sites[~one.peak_sites["site"].isin([UNKNOWN, BEFORE])]
    if known.empty:
        return told
    return f"{told} Most that is told of comes from {known['site'].iloc[0]}: {size(int(known['size_bytes'].iloc[0]))}."


def size(count: int) -> str:
    """Bytes for people, decimal: `2.35 GB`."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 1000 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count} B"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text.startswith("rank") else text
