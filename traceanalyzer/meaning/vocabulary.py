"""The words and looks of what a rank's time consists of."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, get_args

from msgspec import Struct

# The words and looks of what a rank's time consists of: kinds of operation, parts of time, causes of idling.
#
# Each has one key, label, definition, colour and pattern, here. Results name their columns by it, findings and the
# terminal speak by it, pages get it as CSS variables and as JSON, exports colour by it.


@dataclass(frozen=True, slots=True)
class Look:
    """How something is drawn, wherever it is drawn.

    Attributes:
        colour: on white paper.
        dark: on dark paper, where it is another.
        pattern: `hatch`, `stripes`, `dots`, `lines`, `slant` or `bars` on it, for who does not see colours.
        text: colour of words on it; `text_dark` on dark paper.
        viewer: the nearest of the fixed colours of trace-event viewers; one that ignores them colours by name.
    """

    colour: str
    dark: str = ""
    pattern: str = ""
    text: str = "#000"
    text_dark: str = ""
    viewer: str = ""


_UNKNOWN = Look("#CC79A7", viewer="thread_state_uninterruptible")


class Kind(Struct, frozen=True):
    """What a GPU operation does; `short` where there is little room, `one` of a single operation."""

    key: str
    label: str
    short: str
    one: str


KINDS = (
    Kind("compute", "compute", "comp", "compute"),
    Kind("comm", "communication", "comm", "communication"),
    Kind("copy", "copies", "copies", "copy"),
)

GRAPH = Kind("unknown", "graphs, unknown", "graphs", "CUDA graph, recorded as one operation")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a rank's time; `kind` is the name of its look, `short` what a narrow table calls it."""

    column: str
    label: str
    kind: str
    definition: str
    short: str = ""

    @property
    def share(self) -> str:
        """The column of its share of the window."""
        return f"{self.column.removesuffix('_ns')}_pct"


COMPUTE = Part("compute_ns", "compute", "compute", "At least one compute kernel runs.", "compute")
COMM = Part(
    "exposed_comm_ns", "exposed communication", "comm",
    "Communication runs, but no compute: transfer and waiting for other ranks together.", "exposed comm",
)  # fmt: skip
COPY = Part(
    "exposed_copy_ns", "exposed copy", "copy", "A copy or memset runs, but no compute or communication.", "copy"
)
OPAQUE = Part(
    "opaque_ns", "in CUDA graphs, unknown", "unknown",
    "CUDA graphs run that were recorded as one operation each: compute, communication or copies.", "unknown",
)  # fmt: skip
IDLE = Part("idle_ns", "idle", "idle", "Nothing runs on the GPU.", "idle")

FUSED = Part(
    "fused_ns", "compute that communicates too", "compute",
    "A kernel runs that computes and communicates at once: part of compute.", "of it fused",
)  # fmt: skip

PARTS = (COMPUTE, COMM, COPY, OPAQUE, IDLE)
"""They add up to a window."""

TRANSFER = Part(
    "exposed_transfer_ns",
    "exposed transfer",
    "transfer",
    "Data moves between ranks and no compute hides it.",
    "transfer",
)
WAIT = Part(
    "exposed_wait_ns",
    "exposed wait",
    "wait",
    "A communication kernel waits for a later rank; no compute runs.",
    "wait",
)
UNMATCHED = Part(
    "exposed_unmatched_ns", "exposed, unattributed", "unmatched",
    "Exposed communication that is neither known to be transfer nor wait: calls that could not be matched between "
    "ranks, or whose ranks do not wait alike (collectives with one root, uneven all-to-alls).", "unattributed",
)  # fmt: skip

COMM_PARTS = (TRANSFER, WAIT, UNMATCHED)
"""They add up to exposed communication."""


class Cause(Struct, frozen=True):
    """Why a GPU is idle.

    Attributes:
        key: as the `cause` of a table says it.
        label: words for it.
        short: what a hint says of one gap.
        definition: one line.
        look: how it is drawn.
        names: what the names of ranges, operators and calls match in which the CPU is in it; they are lower case, with
            `_` for blanks. Empty where names alone do not say so.
    """

    key: str
    label: str
    short: str
    definition: str
    look: Look
    names: str = ""

    @property
    def column(self) -> str:
        """Of the time by it."""
        return f"{self.key}_ns"

    @property
    def part(self) -> Part:
        """It as a part of a rank's time."""
        return Part(self.column, f"{IDLE.label}: {self.label}", f"{IDLE.kind}-{self.key}", self.definition)


SYNC = Cause(
    "sync", "blocking call", "CPU in a blocking call",
    "The CPU was inside a call that waits for the GPU, or one that blocks at its first call alone, before it launched "
    "the next operation.",
    Look("#8C8C8C", dark="#c3c8cd", pattern="lines"),
)  # fmt: skip
DATA = Cause(
    "data", "data loading", "CPU in the data loader",
    "The CPU was in the data loader or a data range before it launched the next operation.",
    Look("#A6A6A6", dark="#abb1b7", pattern="dots"),
    r"data_?loader|^data$|^(load|get|next|fetch|read)_?(the_)?(data|batch)|^(data|batch)_?(load|loading|fetch|wait|time)"
    r"|^input_?pipeline",
)  # fmt: skip
HOST = Cause(
    "host", "CPU launch", "CPU busy",
    "The CPU was in anything else before it launched the next operation: Python, operators, API calls.",
    Look("#BBBBBB", dark="#8f959b"),
)  # fmt: skip
SHORT_NS = 5_000
"""Shorter gaps are `between kernels`: the GPU's own turnaround."""

LAUNCH_NS = 50_000
"""What launch latency and ordering can explain; longer, the operation waited for something that was not recorded."""

LAUNCH = Cause(
    "launch", "launch latency", "launch latency",
    "The next operation was launched already: latency and ordering, up to 50 µs a gap.",
    Look("#E2E2E2", dark="#8a9097", pattern="slant"),
)  # fmt: skip
UNKNOWN = Cause(
    "unknown", "unknown cause", "cause unknown",
    "Longer than that, or the trace has no launch of the next operation: it does not say why nothing ran.",
    _UNKNOWN,
)  # fmt: skip
BETWEEN_KERNELS = Cause(
    "between_kernels", "between kernels", "between kernels", "Gaps shorter than 5 µs, whatever their cause.",
    Look("#F0F0F0", dark="#50555b", pattern="bars", text_dark="#fff"),
)  # fmt: skip

GAP_CAUSES = (SYNC, DATA, HOST, LAUNCH, UNKNOWN)
"""Of a gap; they add up to it. Of those whose names say so the first counts."""

NAMED_CAUSES = tuple(cause for cause in GAP_CAUSES if cause.names)

IDLE_CAUSES = (*GAP_CAUSES, BETWEEN_KERNELS)
"""They add up to idle time."""

IDLE_PARTS = tuple(cause.part for cause in IDLE_CAUSES)


class OnPath(Struct, frozen=True):
    """What a stretch of the critical path is; nothing waits on it."""

    key: str
    label: str
    definition: str


BEFORE = OnPath("before", "what began before the capture", "began before the capture")

ON_PATH = (
    OnPath(COMPUTE.kind, "compute", "compute kernels"),
    OnPath(COMM.kind, "transfers", "a transfer: waiting is on no critical path"),
    OnPath(COPY.kind, "copies", "copies and memsets"),
    OnPath(HOST.key, "CPU launches", "CPU work"),
    OnPath(DATA.key, "data loading", "the part of that in the data loader"),
    OnPath(LAUNCH.key, "launch latency", "latency"),
    OnPath(SYNC.key, "blocking calls", "a blocking call's own time and return"),
    OnPath(BETWEEN_KERNELS.key, "turnaround between kernels", "the GPU's turnaround"),
    OnPath(UNKNOWN.key, "what no recorded dependency explains", "what no dependency explains"),
    BEFORE,
)
"""They add up to the path."""

SEVERAL = "several"
"""The look of a block that holds several kinds."""

_COMM = Look("#56B4E9", viewer="thread_state_runnable")

LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        COMPUTE.kind: Look("#0072B2", text="#fff", viewer="rail_response"),
        COMM.kind: _COMM,
        TRANSFER.kind: _COMM,
        UNMATCHED.kind: Look("#E6C229", pattern="dots", viewer="thread_state_runnable"),
        "both": replace(_COMM, pattern="stripes"),
        WAIT.kind: Look("#D55E00", pattern="hatch", viewer="thread_state_iowait"),
        COPY.kind: Look("#009E73", viewer="rail_load"),
        OPAQUE.kind: _UNKNOWN,
        IDLE.kind: Look("#BBBBBB", dark="#8f959b", viewer="generic_work"),
        **{cause.part.kind: cause.look for cause in IDLE_CAUSES},
        SEVERAL: Look("#ECE7DD", dark="#3d3a33", viewer="generic_work"),
    }
)
"""By kind of part: colours that people who see few of them tell apart, the patterns for who sees none."""

MARK_VIEWER = "white"
"""What trace-event viewers draw steps and ranges in."""


def viewer_colour(kind: str) -> str:
    """What a trace-event viewer draws a kind in: causes that have none of their own as what they are part of."""
    return LOOKS[kind].viewer or viewer_colour(kind.partition("-")[0])


def by_key() -> dict[str, object]:
    """What a page's scripts need of it, as plain values."""
    return {
        "kinds": {kind.key: {"label": kind.label, "short": kind.short, "one": kind.one} for kind in (*KINDS, GRAPH)},
        "parts": {part.kind: part.label for part in (*PARTS, *COMM_PARTS, *IDLE_PARTS)},
        "causes": {cause.key: {"kind": cause.part.kind, "short": cause.short} for cause in IDLE_CAUSES},
        "between": BETWEEN_KERNELS.key,
        "patterns": {kind: look.pattern for kind, look in LOOKS.items() if look.pattern},
        "texts": {kind: look.text for kind, look in LOOKS.items()},
        "several": LOOKS[SEVERAL].colour,
        "viewer": {kind: viewer_colour(kind) for kind in LOOKS} | {"mark": MARK_VIEWER},
    }


def in_a_sentence(label: str) -> str:
    """A part of time as sentences call it: what a legend calls `idle: host` is `idle (host)` there."""
    part, _, cause = label.partition(": ")
    return f"{part} ({cause})" if cause else label


# What figures are of, in words: all that was recorded, its one complete step, or the mean of several.
#
# `steps` is everywhere how many complete steps a figure is of; `None` of a capture without any.


def whole(steps: int | None) -> str:
    """What is shorter by a gain."""
    return _wording(steps, "the capture", "the step", "a mean step")


def rate(steps: int | None) -> str:
    """The same where only a rate is shown, with a blank before it."""
    return _wording(steps, "", "", " a step")


def _wording(steps: int | None, capture: str, one: str, several: str) -> str:
    return capture if steps is None else one if steps == 1 else several


# How grave what is said is, of a capture's findings and of the doctor's diagnoses alike.


Severity = Literal["high", "medium", "low", "info"]
"""`info` is healthy, or harmless."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Gravest first."""

HIGH, MEDIUM, LOW, INFO = SEVERITIES

GRAVE: tuple[Severity, ...] = (HIGH, MEDIUM)
"""What leads the report, and marks the figures that it affects."""


# How sentences begin.


def first_upper(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[0].upper() + words[1:]


# Several ranks, steps or names in a sentence.


MOST_PIECES = 8
"""Of them as many are named; of the others how many there are."""


def numbered(noun: str, numbers: Collection[int], most: int = MOST_PIECES) -> str:
    """`rank 3`, `ranks 0 to 3 and 7`: which they are, with what they are."""
    return f"{noun}{'' if len(set(numbers)) == 1 else 's'} {listed(numbers, most)}"


def listed(numbers: Collection[int], most: int = MOST_PIECES) -> str:
    """`3`, `3 and 5`, `8 to 15`, `1, 4 and 7`, `0 to 3, 8 and 12 to 15`, `0, 8, 16 … 248`; of many pieces the first."""
    ordered = sorted(set(numbers))
    steps = {two - one for one, two in pairwise(ordered)}
    if len(ordered) > most and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]}, {ordered[1]}, {ordered[2]} … {ordered[-1]}"
    return named([piece for run in _runs(ordered) for piece in _pieces(run)], most)


def lacking(expected: range | Collection[int], here: Collection[int]) -> str:
    """Which of the expected numbers are not here, as `listed`; a damaged file's range of billions costs no more."""
    if not isinstance(expected, range):
        return listed(set(expected).difference(here))
    ends = [expected.start - 1, *sorted(number for number in here if number in expected), expected.stop]
    runs = [range(before + 1, after) for before, after in pairwise(ends)]
    return named([piece for run in runs for piece in _pieces(run)])


def named(names: Sequence[str], most: int = MOST_PIECES) -> str:
    """`b00`, `b00 and b03`, `b00, b03 and b07`; of many the first, and how many more there are; `none`."""
    more = len(names) - most
    *first, last = [*names[:most], f"{more} more"] if more > 0 else names or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _runs(ordered: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _pieces(run: Sequence[int]) -> list[str]:
    return [f"{run[0]}–{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
