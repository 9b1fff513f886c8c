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
            key = sentence.replace(capital(one.snapshot.label), "", 1).replace(one.snapshot.label, "", 1)
            alike.setdefault(key, []).append((sentence, one.snapshot.label))
    made = [folded(*said) for said in alike.values()]
    if len(examined) > 1:
        most, least = (pick(examined, key=lambda one: one.peak_bytes) for pick in (max, min))
        if most.peak_bytes > 1.05 * least.peak_bytes:
            made.append(
                f"{capital(most.snapshot.label)} decides: its peak is {size(most.peak_bytes)}, "
                f"{least.snapshot.label}'s {size(least.peak_bytes)}."
            )
    return made


def folded(first: tuple[str, str], *others: tuple[str, str]) -> str:
    """What one rank's snapshot tells, and which others tell the same."""
    labels = [label for _, label in others]
    if not labels:
        return first[0]
    named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
    return f"{first[0]} ({capital(named)}: the same.)"


def _of_one(one: Examined) -> list[str]:
    made = [_failed(one.snapshot.label, one.oom)] if one.oom else []
    made += [_grows(one.snapshot.label, growth) for growth in one.growths[:3]]
    if one.oom is None and one.growths:
        made.append(_not_failed(one))
    made.append(_peak(one))
    made += _beside_trace(one)
    if one.end["reserved"] and one.free_bytes > 0.25 * one.end["reserved"]:
        made.append(_fragmented(one))
    return made


def _failed(label: str, oom: OutOfMemory) -> str:
    held = size(oom.reserved_bytes - oom.requested_before_bytes)
    free = "" if oom.device_free_bytes is None else f", and the GPU had {size(oom.device_free_bytes)} left"
    return (
        f"{capital(label)} ran out of memory at {oom.site}: it asked for {size(oom.requested_bytes)} while tensors "
        f"held {size(oom.requested_before_bytes)}; {held} more were reserved, in pieces that did not fit{free}."
    )


def _grows(label: str, growth: Growth) -> str:
    each = size(growth.per_step_bytes)
    rate = f"{each} a step" if growth.is_by_steps else f"{each} in each eighth of the recorded time"
    unit = "steps" if growth.is_by_steps else "eighths"
    return (
        f"{capital(label)}'s memory grows by {rate}: what {growth.site} allocates is never freed, "
        f"{size(growth.size_bytes)} in {growth.blocks:,} blocks after {growth.steps} of {growth.of_steps} {unit}. "
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
    if not one.taken:
        return f"{told}."
    first = one.taken[0]
    others = "only " if len(one.taken) == 1 else "above all "
    times = "once" if first.times == 1 else f"{first.times} times"
    return (
        f"{told}. In the second half of the history {others}{first.site} made it take more from the GPU, {times} and "
        f"{size(first.size_bytes)}: the first request without room is most likely there."
    )


def _fragmented(one: Examined) -> str:
    advice = (
        " If it runs out of memory with so much free, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: freed "
        "memory then serves requests of other sizes."
    )
    return (
        f"Of {one.snapshot.label}'s {size(one.end['reserved'])} reserved {size(one.free_bytes)} are free at the "
        f"snapshot's moment, in {one.free_blocks:,} blocks, the largest of {size(one.largest_free_bytes)}: usual "
        "between two steps, but a larger request needs new memory from the GPU."
        f"{'' if one.snapshot.settings.get('expandable_segments') else advice}"
    )


def _beside_trace(one: Examined) -> list[str]:
    steps = one.trace_steps
    if steps is None:
        return []
    who = capital(one.snapshot.label)
    if steps.peak_step is not None:
        return [f"{who}'s peak lies in step {steps.peak_step} of the trace."]
    if steps.before_ns is not None:
        return [f"{who}'s history ends {steps.before_ns / 1e6:,.0f} ms before the trace's first step: it holds none."]
    return [] if steps.table.empty else [f"{who}'s peak lies outside the steps of the trace."]


def _peak(one: Examined) -> str:
    largest = one.peak_categories.sort_values("size_bytes", ascending=False).head(4)
    named = zip(largest["category"], largest["size_bytes"], strict=True)
    parts = ", ".join(f"{category} {size(total)}" for category, total in named)
    told = f"{capital(one.snapshot.label)} peaks at {size(one.peak_bytes)} in use: {parts}."
    known = one.peak_sites[~one.peak_sites["site"].isin([UNKNOWN, BEFORE])]
    if known.empty:
        return told
    return f"{told} The line with most is {known['site'].iloc[0]}: {size(int(known['size_bytes'].iloc[0]))}."


def size(count: int) -> str:
    """Bytes for people, decimal: `2.35 GB`."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 1000 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count} B"


def capital(text: str) -> str:
    """A rank at the start of a sentence; files keep their names."""
    return text[0].upper() + text[1:] if text.startswith("rank") else text
