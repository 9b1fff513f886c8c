"""The words and looks of what a rank's time consists of: kinds of operation, parts of time, causes of idling.

Each has one key, label, definition, colour and pattern, here. Results name their columns by it, findings and the
terminal speak by it, pages get it as CSS variables and as JSON, exports colour by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from msgspec import Struct


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
    "exposed_copy_ns", "exposed copy", "copy", "A copy or memset runs, but no compute or communication.", "exposed copy"
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
    "exposed_transfer_ns", "exposed transfer", "transfer", "Data moves between ranks and no compute hides it."
)
WAIT = Part(
    "exposed_wait_ns", "exposed wait", "wait", "A communication kernel waits for a later rank; no compute runs."
)
UNMATCHED = Part(
    "exposed_unmatched_ns", "exposed, unmatched", "unmatched",
    "Exposed communication whose calls could not be matched between ranks.",
)  # fmt: skip
INSEPARABLE = replace(
    UNMATCHED, label="exposed transfer + wait, not separable",
    definition="Exposed communication whose ranks do not wait alike: collectives with one root, uneven all-to-alls.",
)  # fmt: skip
UNSPLIT = replace(
    UNMATCHED, label="exposed, unmatched or not separable",
    definition=f"{UNMATCHED.definition} Or: {INSEPARABLE.definition}",
)  # fmt: skip
"""Exposed communication that is neither transfer nor wait, where its calls are not at hand, or are of both sorts."""

COMM_PARTS = (TRANSFER, WAIT, UNMATCHED)
"""They add up to exposed communication; the third is one of three, by its calls."""


class Cause(Struct, frozen=True):
    """Why a GPU is idle.

    Attributes:
        key: as the `cause` of a table says it.
        label: words for it.
        short: what a hint says of one gap.
        definition: one line.
    """

    key: str
    label: str
    short: str
    definition: str

    @property
    def column(self) -> str:
        """Of the time by it."""
        return f"{self.key}_ns"

    @property
    def part(self) -> Part:
        """It as a part of a rank's time."""
        return Part(self.column, f"{IDLE.label}: {self.label}", f"{IDLE.kind}-{self.key}", self.definition)


SYNC = Cause(
    "sync", "synchronising call", "host in a synchronising call",
    "The host was inside a synchronising call, or one that blocks at its first call alone, before it launched the next "
    "operation.",
)  # fmt: skip
DATA = Cause(
    "data", "data loader", "host in the data loader",
    "The host was in the data loader or a data range before it launched the next operation.",
)  # fmt: skip
HOST = Cause(
    "host", "host", "host busy",
    "The host was in anything else before it launched the next operation: Python, operators, API calls.",
)  # fmt: skip
SHORT_NS = 5_000
"""Shorter gaps are `between kernels`: the GPU's own turnaround."""

LAUNCH_NS = 50_000
"""What launch latency and ordering can explain; longer, the operation waited for something that was not recorded."""

LAUNCH = Cause(
    "launch", "launch latency", "launch latency",
    "The next operation was launched already: latency and ordering, up to 50 µs a gap.",
)  # fmt: skip
UNKNOWN = Cause(
    "unknown", "unknown cause", "cause unknown",
    "Longer than that, or the trace has no launch of the next operation: it does not say why nothing ran.",
)  # fmt: skip
BETWEEN_KERNELS = Cause(
    "between_kernels", "between kernels", "between kernels", "Gaps shorter than 5 µs, whatever their cause."
)

GAP_CAUSES = (SYNC, DATA, HOST, LAUNCH, UNKNOWN)
"""Of a gap; they add up to it."""

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
    OnPath(HOST.key, "hosts' work", "the host's work"),
    OnPath(DATA.key, "loading of data", "the part of that in the data loader"),
    OnPath(LAUNCH.key, "launch latency", "latency"),
    OnPath(SYNC.key, "calls that block hosts", "a blocking call's own time and return"),
    OnPath(BETWEEN_KERNELS.key, "turnaround between kernels", "the GPU's turnaround"),
    OnPath(UNKNOWN.key, "what no recorded dependency explains", "what no dependency explains"),
    BEFORE,
)
"""They add up to the path."""

SEVERAL = "several"
"""The look of a block that holds several kinds."""

_UNKNOWN = Look("#CC79A7", viewer="thread_state_uninterruptible")
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
        SYNC.part.kind: Look("#8C8C8C", dark="#c3c8cd", pattern="lines"),
        DATA.part.kind: Look("#A6A6A6", dark="#abb1b7", pattern="dots"),
        HOST.part.kind: Look("#BBBBBB", dark="#8f959b"),
        LAUNCH.part.kind: Look("#E2E2E2", dark="#8a9097", pattern="slant"),
        UNKNOWN.part.kind: _UNKNOWN,
        BETWEEN_KERNELS.part.kind: Look("#F0F0F0", dark="#50555b", pattern="bars", text_dark="#fff"),
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
