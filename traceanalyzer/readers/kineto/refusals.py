"""Why a file of events is no trace that can be read, and what to record or give instead."""

import re

from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.other_devices import DEVICES, FOREIGN, OUT_OF_TREE
from traceanalyzer.decoding.stream import EventText
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.files.other_tools import written_by
from traceanalyzer.readers.kineto.head import Properties

_OF_NPUS = re.compile(r"^(?:trace_view|msprof\w*)\.json")
"""Names under which Ascend's profilers write."""

_OF_ANY_OTHER = f"a capture of {DEVICES[OUT_OF_TREE]}"

_SPLIT = "a rank's recording is a file of its own: split it where its second list of traceEvents begins"

_ONE_PATH = (
    "several ranks wrote to this path, each over parts of the others' recording; record again with the rank in the "
    "file's name, such as tensorboard_trace_handler(folder, worker_name=f'rank_{rank}')"
)

_APART = "give the files that it was made of, as the profilers wrote them, one for each rank, in a folder of their own"


def why_refused(text: EventText, decoder: EventDecoder, builder: TableBuilder, known: Properties,
                without_category: int, *, has_ops: bool, has_host: bool) -> str | None:  # fmt: skip
    """Why what was decoded gives no trace; `None` where it does: of a GPU's work, or of the host alone."""
    if decoder.followed:
        return f"{decoder.followed + 1} traces, one behind the other; {_SPLIT}"
    if builder.origins.are_several():
        return _of_several(known)
    if has_ops:
        return None
    if of_others := _of_others(text, builder, without_category):
        return of_others
    if has_host and not text.is_truncated:
        return None
    return _of_another_tool(text) or _why_empty(text, decoder, without_category, has_host=has_host)


def _of_several(known: Properties) -> str:
    """A file's header names one rank, unless a tool made the file."""
    if known.rank is None:
        return f"the recordings of several processes, merged into one file; {_APART}"
    lost = f"rank {1 - known.rank}" if known.world_size == 2 else "each other rank that wrote to it"
    return f"parts of several ranks' recordings, under the header of rank {known.rank}: {lost} is lost; {_ONE_PATH}"


def _of_others(text: EventText, builder: TableBuilder, without_category: int) -> str | None:
    if builder.foreign:
        return _of_another_device(builder)
    if builder.called:
        return _calls_alone(builder)
    is_of_npus = without_category > 0 and _OF_NPUS.match(text.path.name)
    if is_of_npus:
        return f"a capture of NPU devices, whose events ({without_category:,}) are not read"
    return _of_another_tool(text) if without_category else None


def _of_another_device(builder: TableBuilder) -> str:
    category, count = builder.foreign.most_common(1)[0]
    what = FOREIGN.get(category, _OF_ANY_OTHER)
    return (
        f"{what}: its events ({count:,} of category {category}) are not read, only kernels and copies "
        "that are recorded as kernel, gpu_memcpy and gpu_memset"
    )


def _calls_alone(builder: TableBuilder) -> str:
    category, count = builder.called.most_common(1)[0]
    device = category.rpartition("_")[0]
    what = DEVICES.get(device, f"{device.upper()} devices")
    return (
        f"a capture of {what}: it holds calls of their runtime ({count:,} of category {category}) and none of their "
        "operations as kernel, gpu_memcpy and gpu_memset, which alone are read"
    )


def _of_another_tool(text: EventText) -> str | None:
    again = EventText.open(text.path)
    again.file.close()
    return written_by(again.begin)


def unread(count: int) -> str:
    """How many events are left out."""
    return f"{count:,} event{'s have' if count > 1 else ' has'} no category and {'are' if count > 1 else 'is'} not read"


def _why_empty(text: EventText, decoder: EventDecoder, without_category: int, *, has_host: bool) -> str:
    if text.is_truncated:
        what = "GPU operation" if has_host else "event"
        return f"cut off before its first {what}; copy the whole file, or record it again"
    if decoder.skipped:
        return f"none of its {decoder.skipped} events can be read"
    if without_category:
        return (
            f"a Chrome trace whose {unread(without_category)}, as PyTorch's old torch.autograd.profiler writes them; "
            "record with torch.profiler"
        )
    return (
        "a Chrome trace without PyTorch operators or GPU operations; so is one whose profiler's schedule had begun "
        "anew when it was exported: export in on_trace_ready, or with torch.profiler.schedule(…, repeat=1)"
    )
