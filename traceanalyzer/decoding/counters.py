"""Counters of Kineto files: memory of the GPU as it changes, and what the GPU's hardware counted between samples."""

import msgspec

from traceanalyzer.decoding.columns import Columns
from traceanalyzer.decoding.events import Instant, Sample
from traceanalyzer.meaning.rows import NONE

MEMORY = "[memory]"
"""Name of the events that tell how much memory is allocated and reserved."""

_GPU_MEMORY = 1
"""`Device Type` of memory events on the GPU."""

_SAMPLED = ("hardware_counters", "mtia_counters")
"""Categories of counter events that hold samples at equal distances: those of CUPTI's PM sampling, and of MTIA."""


def add_memory(table: Columns, events: list[Instant], threads: list[int]) -> None:
    """Append levels of the GPU's memory; the host's memory is left out."""
    held = [
        (event, thread, event.args)
        for event, thread in zip(events, threads, strict=True)
        if event.args and event.args.device_type == _GPU_MEMORY
    ]
    for name in ("allocated", "reserved"):
        known = [each for each in held if getattr(each[2], name) is not None]
        if known:
            table.instants([event for event, _, _ in known])
            table.integers("thread", [thread for _, thread, _ in known])
            table.texts("name", [f"memory_{name}_bytes"] * len(known))
            table.floats("value", [getattr(args, name) for _, _, args in known])
            table.integers("address", [args.address if name == "allocated" else None for _, _, args in known])
            table.integers("device", [args.device for _, _, args in known])


def add_samples(table: Columns, events: list[Sample]) -> None:
    """Append what was counted, a row for each counter of an event; what is no number is left out."""
    rows = [
        (event, name, value)
        for event in events
        if event.cat.lower() in _SAMPLED
        for name, value in _values(event.args).items()
    ]
    if rows:
        table.instants([event for event, _, _ in rows])
        table.integers("thread", [NONE] * len(rows))
        table.texts("name", [name for _, name, _ in rows])
        table.floats("value", [value for _, _, value in rows])
        table.integers("address", [None] * len(rows))
        table.integers("device", [event.pid if isinstance(event.pid, int) else None for event, _, _ in rows])


def _values(args: msgspec.Raw) -> dict[str, float]:
    try:
        return msgspec.json.decode(args, type=dict[str, float])
    except msgspec.DecodeError:
        return {}
