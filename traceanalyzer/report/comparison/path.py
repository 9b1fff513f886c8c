"""The concluding sentence of a comparison: which path bound the step before, and which binds it now."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from traceanalyzer.analyses.replay.gain import BOUND_PCT
from traceanalyzer.diff.captures import Capture
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT
from traceanalyzer.findings.unprofiled import BINDS_PCT
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import per_cent
from traceanalyzer.meaning.vocabulary import DATA, HOST, LAUNCH, ON_PATH

_MOSTLY = 0.7
"""Of a category's time on the path: a rank with this much of it is named."""

_NAMED = 0.3
"""Of the same: so is an operator."""

_UNNAMED = (DATA.key, HOST.key)
"""Categories of which the path names the operator that was launched at last, not what took the host so long."""

_PROFILED = "Hosts are slower under a profiler: time it without one."

WORDS: Mapping[str, str] = MappingProxyType({one.key: one.label for one in ON_PATH})
"""Categories of a critical path."""

_HOSTS = (HOST.key, LAUNCH.key)
"""Categories that hosts which take no time take off the path."""

_ON_GPUS = "work on the GPUs"


@dataclass(frozen=True, slots=True)
class Bound:
    """What binds a capture's step: in words, and by what that is told.

    Attributes:
        words: most of the critical path; the GPUs, where hosts are on the path and gain next to nothing.
        share: `78 % of the critical path`.
        is_of_hosts: it stands on the time of hosts.
    """

    words: str
    share: str
    is_of_hosts: bool = False


def sentence(base: Capture, other: Capture) -> str | None:
    """Of two captures; `None` where either has no critical path."""
    before, now = bound_of(base), bound_of(other)
    if before is None or now is None:
        return None
    if before.words == now.words:
        return f"The same binds both: {now.words} ({before.share} in {base.label}, {now.share} in {other.label})."
    said = f"{base.label} was bound by {before.words} ({before.share}); {other.label} is by {now.words} ({now.share})."
    return f"{said} {_PROFILED}" if now.is_of_hosts else said


def _of_one(words: str) -> str:
    return "host" if words == WORDS[HOST.key] else words


def bound_of(capture: Capture) -> Bound | None:
    """The category that takes most of the critical path, with its rank and operator where one has most of that.

    Hosts bind only where a step would be shorter without their time: of two paths that are about as long the critical
    one is the longer by little, and recording lengthens that of the hosts. Nothing is told where waits whose partners
    are not known stay as they were in that replay.
    """
    table = capture.table("critical_path")
    if table is None or not table["path_ns"].sum():
        return None
    by_category = table.groupby("category")["path_ns"].sum()
    category = str(by_category.idxmax())
    spared = _gained_pct(capture, "--host none") if category in _HOSTS else None
    if spared is not None and spared < BINDS_PCT:
        if has_open_waits(capture):
            return None
        return Bound(_ON_GPUS, f"hosts that take no time would shorten a step by {spared:.1f} %")
    own = table[table["category"] == category]
    total = float(own["path_ns"].sum())
    words = WORDS[category]
    by_rank = own.groupby("rank")["path_ns"].sum()
    if by_rank.max() >= _MOSTLY * total and _is_apart(capture, table, int(by_rank.idxmax())):
        words = f"rank {int(by_rank.idxmax())}'s {_of_one(words)}"
    by_name = own.groupby("name")["path_ns"].sum()
    if category not in _UNNAMED and len(by_name) and by_name.max() >= _NAMED * total:
        words = f"{words}, most of it {short_name(str(by_name.idxmax()))}"
    share = f"{per_cent(round(100 * float(by_category.max()) / float(by_category.sum())))} % of the critical path"
    return Bound(words, share, is_of_hosts="host" in words)


def _is_apart(capture: Capture, path: pd.DataFrame, rank: int) -> bool:
    """Whether the path is this rank's for a reason: as fast as its peers it would shorten the step beyond chance.

    Of ranks that need about as long the path lies on one. Where that change was not replayed any rank among others is.
    """
    breakdown = capture.table("breakdown")
    if (path if breakdown is None else breakdown)["rank"].nunique() < 2:
        return False
    gained = _gained_pct(capture, f"--rank {rank}=peers")
    return gained is None or gained >= CLEAR_GAIN_PCT


def has_open_waits(capture: Capture) -> bool:
    """Whether over 3 % of a step is communication of which a replay does not know for whom it waits."""
    table = capture.table("what_ifs")
    if table is None or "unmatched_ns" not in table:
        return False
    row = table.iloc[0]
    return bool(row["unmatched_ns"] > BOUND_PCT / 100 * row["before_ns"])


def _gained_pct(capture: Capture, option: str) -> float | None:
    """What the change gains, in per cent of a step, without what recording takes the hosts where that is known."""
    table = capture.table("what_ifs")
    rows = table[table["option"] == option] if table is not None else pd.DataFrame()
    if rows.empty:
        return None
    row = rows.iloc[0]
    is_known = not (pd.isna(row["unprofiled_gain_ns"]) or pd.isna(row["unprofiled_ns"]))
    gain, step = ("unprofiled_gain_ns", "unprofiled_ns") if is_known else ("gain_ns", "before_ns")
    return 100 * float(row[gain]) / float(row[step]) if row[step] else None
