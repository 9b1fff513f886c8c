"""The concluding sentence of a comparison: which path bound the step before, and which binds it now."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import digits
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS

_MOSTLY = 0.7
"""Of a category's time on the path: a rank with this much of it is named."""

_NAMED = 0.3
"""Of the same: so is an operator."""

_UNNAMED = ("data", "host")
"""Categories of which the path names the operator that was launched at last, not what took the host so long."""

_PROFILED = "Hosts are slower under a profiler: time it without one."

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "compute",
        "comm": "transfers",
        "copy": "copies",
        "host": "hosts' work",
        "data": "loading of data",
        "launch": "launch latency",
        "sync": "calls that block hosts",
        BETWEEN_KERNELS.key: "turnaround between kernels",
        "unknown": "what no recorded dependency explains",
        "before": "what began before the capture",
    }
)
"""Categories of a critical path."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What most of a capture's critical path is: in words, and in per cent of the path."""

    words: str
    pct: float

    @property
    def share(self) -> str:
        """`78 % of the critical path`."""
        return f"{digits(round(self.pct))} % of the critical path"


def sentence(base: Capture, other: Capture) -> str | None:
    """Of two captures; `None` where either has no critical path."""
    before, now = bound_of(base), bound_of(other)
    if before is None or now is None:
        return None
    if before.words == now.words:
        return f"The same binds both: {now.words} ({before.share} in {base.label}, {now.share} in {other.label})."
    said = f"{base.label} was bound by {before.words} ({before.share}); {other.label} is by {now.words} ({now.share})."
    return f"{said} {_PROFILED}" if "host" in now.words else said


def _of_one(words: str) -> str:
    return words.replace("hosts' work", "host")


def bound_of(capture: Capture) -> Bound | None:
    """The category that takes most of the critical path, with its rank and operator where one has most of that."""
    table = capture.table("critical_path")
    if table is None or not table["path_ns"].sum():
        return None
    by_category = table.groupby("category")["path_ns"].sum()
    category = str(by_category.idxmax())
    own = table[table["category"] == category]
    total = float(own["path_ns"].sum())
    words = WORDS.get(category, category.replace("_", " "))
    by_rank = own.groupby("rank")["path_ns"].sum()
    if table["rank"].nunique() > 1 and by_rank.max() >= _MOSTLY * total:
        words = f"rank {int(by_rank.idxmax())}'s {_of_one(words)}"
    by_name = own.groupby("name")["path_ns"].sum()
    if category not in _UNNAMED and len(by_name) and by_name.max() >= _NAMED * total:
        words = f"{words}, most of it {short_name(str(by_name.idxmax()))}"
    return Bound(words, 100 * float(by_category.max()) / float(by_category.sum()))
