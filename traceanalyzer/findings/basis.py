"""The basis of findings: a mean complete step, profiled and not, and gains in words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace as structs_replace

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.grouping import Groups, once_of_tables
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.time.headline import Headline, shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Unit, digits, time_span, time_text, unit_of
from traceanalyzer.meaning.vocabulary import (
    Severity,
    gain_range_said,
    gain_said,
    rate,
    step_or_capture,
    whole,
    within_whole,
)
from traceanalyzer.model.tables import columns_of, floats, rows_where, table_of

# What findings measure by: mean complete step of each rank, or the whole capture without such steps.


LEAST_GAIN_PCT = 1.0
"""Of a step: what mending gains by the replay. Less is not said."""

CLEAR_GAIN_PCT = 3.0
"""The same for what chance or a profiler makes too: steps that differ, kernels beside others, second causes."""


MOSTLY = 0.6
"""Of a gain or a time: what has so much of it explains it."""

EXPLAINED_PCT = 50.0
"""Of what takes a rank longer, by which something that differs is said to be why."""


def gains_nothing(gain: Gain | None) -> bool:
    """Not even the most that the change may gain is worth saying, as recorded or without the profiler."""
    if gain is None:
        return False
    return 100 * max(gain.most_gain_ns, gain.unprofiled_gain_ns or 0) < LEAST_GAIN_PCT * gain.before_ns


class Basis(Struct, frozen=True):
    """The headline's window.

    Attributes:
        steps: how many complete steps it is the sum of; `None` for a whole capture.
        numbers: of those steps.
        window_ns: its length by rank.
    """

    steps: int | None
    numbers: tuple[int, ...]
    window_ns: pd.Series

    @classmethod
    def of(cls, headline: Headline, steps: Steps) -> "Basis":
        """The basis of a headline that has at least one row."""
        return _basis(headline.table, steps.table)

    @property
    def per(self) -> int:
        """By what to divide for a mean step; 1 for a whole capture."""
        return self.steps or 1

    @property
    def of_a_step(self) -> str:
        """Words for what a share is of."""
        return f"of {step_or_capture(self.steps)}"

    @property
    def a_step(self) -> str:
        """Words behind a time: of a mean step, or of all that was recorded."""
        return within_whole(self.steps)

    @property
    def rate(self) -> str:
        """The same where only a rate is to be told, with a blank before it."""
        return rate(self.steps)

    def times(self, calls: float) -> str:
        """Words for how often something is called, `146 times a step`; `calls` is of all steps."""
        said = digits(calls / self.per)
        return f"{'once' if said == '1' else f'{said} times'} {self.a_step}"

    @property
    def whole(self) -> str:
        """Words for what is shorter by a gain."""
        return whole(self.steps)

    def within(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of a table with a `step` that belong to the basis: all of them for a whole capture."""
        return table if self.steps is None else _within(table, numbers=self.numbers)

    def scaled(self, cost_ns: int, window_ns: int, rank: int) -> int:
        """A cost measured over `window_ns`, as a mean step of the rank would hold it by its length."""
        return round(cost_ns * self.mean_ns(rank) / window_ns) if window_ns else 0

    def mean_ns(self, rank: int) -> float:
        """Mean length of the rank's steps, or its whole window."""
        return float(self.window_ns[rank]) / self.per

    @property
    def step_ns(self) -> float:
        """The same, of a mean rank."""
        return float(self.window_ns.mean()) / self.per

    def shares_pct(self, spent_ns: pd.Series) -> pd.Series:
        """What part of a mean step each rank spends in something, of its time in it; ranks without are absent."""
        return (100.0 * spent_ns / (self.window_ns / self.per)).dropna()

    def largest_share(self, spent_ns: pd.Series, least_pct: float) -> tuple[int, pd.Series] | None:
        """The rank that spends the largest part of a step in something, and all ranks' parts (%).

        `None` where none spends `least_pct`.
        """
        share = self.shares_pct(spent_ns)
        return (int(share.idxmax()), share) if len(share) and share.max() >= least_pct else None

    def shares_of_rows(self, table: pd.DataFrame, column: str) -> pd.Series:
        """The same of each row of a table with a `rank`: a time of a mean step, in percent of its rank's; NA stays."""
        window_ns = table["rank"].map(self.window_ns).astype("Float64") / self.per
        return 100.0 * table[column].astype("Float64") / window_ns


@once_of_tables
def _basis(headline: pd.DataFrame, steps: pd.DataFrame) -> Basis:
    windows = headline.set_index("rank")["window_ns"].astype("int64")
    count = count_of_steps(headline)
    if count is None:
        return Basis(None, (), windows)
    return Basis(count, tuple(shared_steps(complete_steps(steps), set(windows.index))), windows)


def count_of_steps(table: pd.DataFrame) -> int | None:
    """Of how many complete steps the rows of a headline are, or of what is joined to one; `None` of a whole capture."""
    steps = table["steps"].iloc[0]
    return None if pd.isna(steps) else int(steps)


@once_of_tables
def _within(table: pd.DataFrame, *, numbers: tuple[int, ...]) -> pd.DataFrame:
    return rows_where(table, table["step"].isin(numbers))


def mean_steps(by_step: Result, basis: Basis, columns: list[str]) -> pd.DataFrame:
    """Means over the basis' steps of a Result with a row for each rank and step (`step` absent: the whole)."""
    if basis.steps is None:
        table = by_step.table[["rank", *columns]]
        return table[by_step.table["step"].isna()].set_index("rank").astype("float64")
    held = columns_of(basis.within(by_step.table))
    ranks = Groups.of(held, ["rank"])
    means = {name: _mean(ranks, held[name]) for name in columns}
    return table_of(means, pd.Index(ranks.keys["rank"], name="rank"))


def _mean(groups: Groups, values: Any) -> np.ndarray:
    """For each group the mean of what is known; NaN where nothing is."""
    plain = floats(values)
    is_known = ~np.isnan(plain)
    sums = np.bincount(groups.of_row, np.where(is_known, plain, 0.0), len(groups))
    counts = np.bincount(groups.of_row, is_known, len(groups))
    return np.divide(sums, counts, out=np.full(len(groups), np.nan), where=counts > 0)


def per_step(table: pd.DataFrame, columns: Sequence[str], steps: int | None) -> pd.DataFrame:
    """The table with these sums as those of a mean step: `length_ns` becomes `length_per_step_ns`."""
    if steps is None:
        return table
    means = {name: table[name].astype("Float64") / steps for name in columns}
    whole = {name: mean.round().astype("Int64") if unit_of(name) is Unit.NS else mean for name, mean in means.items()}
    return table.assign(**whole).rename(columns={name: _of_a_step(name) for name in columns})


def steps_of_operators(steps: Steps, basis: Basis) -> pd.Series:
    """Of each rank in how many steps its operators are counted, complete or not; 1 for a whole capture."""
    if basis.steps is None:
        return pd.Series(1, index=basis.window_ns.index)
    table = steps.table
    return rows_where(table, table["step"].notna()).groupby("rank")["step"].nunique()


def basis_of_operators(steps: Steps, basis: Basis, ranks: Ranks | None = None) -> Basis:
    """The basis with steps as long as those that a rank's operators are counted in: shares are of these.

    Of a whole capture the operators' CPU time lies anywhere among the recorded events, whose span `ranks` has.
    """
    if basis.steps is None:
        if ranks is None:
            return basis
        return structs_replace(
            basis, window_ns=ranks.table.set_index("rank")["events_ns"].reindex(basis.window_ns.index)
        )
    table = rows_where(steps.table, steps.table["step"].notna())
    mean_ns = table["window_ns"].astype("float64").groupby(table["rank"]).mean().reindex(basis.window_ns.index)
    return structs_replace(basis, window_ns=(mean_ns * basis.steps).fillna(basis.window_ns))


def _of_a_step(column: str) -> str:
    stem, _, unit = column.rpartition("_")
    return f"{stem}_per_step_{unit}" if stem else f"{column}_per_step"


def has_longer_window(window: pd.Series, rank: int, excess_ns: float) -> bool:
    """Whether more of the same work lies in the rank's window, which makes half of its excess or more."""
    return bool(2 * (window[rank] - window.mean()) > excess_ns)


def around(start_ns: int, end_ns: int, steps: pd.DataFrame, rank: int) -> tuple[int, int]:
    """What to look at to understand a stretch: the rank's step that it begins in, or itself outside any."""
    if "start_ns" not in steps:
        return start_ns, end_ns
    own = steps[(steps["rank"] == rank) & steps["start_ns"].notna()]
    begins = own["start_ns"].to_numpy(np.int64)
    ends = begins + own["window_ns"].to_numpy(np.int64)
    held = (begins <= start_ns) & (start_ns < ends)
    return (int(begins[held][0]), max(int(ends[held][0]), end_ns)) if held.any() else (start_ns, end_ns)


def about(cause: str, rank: int) -> str:
    """How findings about a rank's lateness, and those that are part of it, call its cause."""
    return f"{cause} of rank {rank}"


def plain(frame: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Rows as a finding holds them: absent values are `None`."""
    return tuple(
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.astype("object").to_dict("records")
    )


def severity(share_pct: float) -> Severity:
    """By the share of time that is lost."""
    return "high" if share_pct >= 20 else "medium" if share_pct >= 5 else "low"


def lower(level: Severity) -> Severity:
    """The next lower severity; `low` stays."""
    return "medium" if level == "high" else "low"


# What recording itself does to the figures: hosts that stop for every call that is written down.


_OTHER = 0.2
"""A gain that differs by more than this part of the larger one is another gain without the profiler; so is one that
differs by more than runs of one job do."""

_WORTH_PCT = 1.0
"""Of a step: what less than this differs by is not worth saying."""

HOSTS = "hosts"

_LOADED = 0.5

BINDS_PCT = 10.0
"""Hosts that could shorten the step without the profiler by more than this share of it bind it there, too."""


def otherwise(gain_ns: int, unprofiled_ns: int | None, step_ns: int) -> str:
    """` (an estimated 1.2 ms shorter without the profiler)` where the gain is another one there; else empty.

    What gains nothing there is no shorter: nobody would read "0 ns shorter".
    """
    if unprofiled_ns is None or not is_another(gain_ns, unprofiled_ns, step_ns):
        return ""
    shorter = f"an estimated {time_text(unprofiled_ns)} shorter" if unprofiled_ns else "by estimate no shorter"
    return f" ({shorter} without the profiler)"


def is_another(recorded_ns: float, unprofiled_ns: float, step_ns: float) -> bool:
    """Whether a gain, or a change of either sign, is another one without the profiler."""
    apart = abs(recorded_ns - unprofiled_ns)
    is_other = apart > _OTHER * max(abs(recorded_ns), abs(unprofiled_ns)) and 100 * apart >= _WORTH_PCT * step_ns
    return is_other or apart > RUN_TO_RUN * step_ns


def who_decides(of_hosts: Gain | None, of_data: Gain | None) -> str:
    """The `hosts` decide a step's length; the data loader, where data that is ready gains half of what they could."""
    is_loaded = of_hosts is not None and of_data is not None and of_data.gain_ns > _LOADED * of_hosts.gain_ns
    return "the data loader" if is_loaded else HOSTS


def of_hosts(
    steps_ns: tuple[int, int] | None,
    ideal_ns: int | None,
    *,
    steps: int | None,
    are_waits_open: bool = False,
    who: str = HOSTS,
) -> tuple[str, bool | None]:
    """A sentence on the step without the profiler, and whether hosts bind it, too; `None` where that cannot be told.

    Args:
        steps_ns: the step with the most that recording may take the hosts taken away, and with the least.
        ideal_ns: the step of hosts that take no time.
        steps: how many these are means of; `None` of the whole capture.
        are_waits_open: waits for partners that are not known stay in all of these as they were: they are the most that
            the job needs.
        who: what of hosts binds the step, as `who_decides` has it.
    """
    if steps_ns is None or ideal_ns is None:
        return "", True
    shortest, longest = steps_ns
    what = step_or_capture(steps)
    an_estimate = "at most an estimated" if are_waits_open else "an estimated"
    takes = f"Recording slows hosts: without it {what} would take {an_estimate} {time_span(shortest, longest)}"
    most, least = (100 * (step - ideal_ns) / step if step else 0.0 for step in (longest, shortest))
    if most < BINDS_PCT and not are_waits_open:
        return f"{takes}, and the GPUs would decide its length.", False
    if least >= BINDS_PCT:
        return f"{takes}, and {who} would still decide its length.", True
    return f"{takes}; whether {who} would still decide its length cannot be told from this capture.", None


# What is won, as a part of a title: `at most 3.2 ms shorter`. Titles keep such parts till their gains are known.


DELAYED = " (how much is not known: start delays without a recorded cause lie in it)"

_SURE = 0.01
"""An error below this part of a gain is not worth saying."""


@dataclass(frozen=True, slots=True)
class Won:
    """By how much a step, or the capture, is shorter: words behind `is` or `would be`.

    Attributes:
        gain_ns: of the recorded one.
        is_bound: it is the most that can be won (`gain_said`).
        unprofiled_ns: the gain without the profiler, where that is to be said if it is another one.
        step_ns: what is shorter, before.
        error_ns: how far the gain may be off, where that is to be said; of a bound it is not.
        most_ns: the gain where start delays that no recorded dependency explains go, too; `None` where they are few.
    """

    gain_ns: int
    is_bound: bool
    unprofiled_ns: int | None = None
    step_ns: int = 0
    error_ns: int = 0
    most_ns: int | None = None

    @classmethod
    def of(cls, gain: Gain, *, is_bound: bool | None = None) -> Self:
        """What a replay gains, and without the profiler; a bound by itself unless it is said."""
        bound = gain.is_bound if is_bound is None else is_bound
        most_ns = gain.most_gain_ns if gain.is_delayed else None
        return cls(gain.gain_ns, bound, gain.unprofiled_gain_ns, gain.before_ns, most_ns=most_ns)

    @classmethod
    def recorded(cls, gain: Gain, *, is_bound: bool | None = None) -> Self:
        """The same of the recorded step alone."""
        return replace(cls.of(gain, is_bound=is_bound), unprofiled_ns=None)

    @property
    def without(self) -> str:
        """What is said of a step without the profiler, where that gains something else."""
        return otherwise(self.gain_ns, self.unprofiled_ns, self.step_ns)

    def __str__(self) -> str:
        if self.most_ns is not None:
            return f"{gain_range_said(self.gain_ns, self.most_ns)} shorter{self.without}{DELAYED}"
        if not self.gain_ns:
            return f"no shorter{self.without}"
        is_off = not self.is_bound and self.error_ns and self.error_ns >= _SURE * self.gain_ns
        error = f" (± {time_text(self.error_ns)})" if is_off else ""
        return f"{gain_said(time_text(self.gain_ns), is_bound=self.is_bound)}{error} shorter{self.without}"


class Title(str):
    """Sentences of parts: what is won is said anew where it turns out to be a bound."""

    __slots__ = ("parts",)

    parts: tuple[str | Won, ...]

    def __new__(cls, *parts: str | Won) -> Self:
        """Parts that are titles themselves are taken apart."""
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(own for part in parts for own in (part.parts if isinstance(part, Title) else (part,)))
        return made

    def as_bound(self) -> "Title":
        """The same with gains that are the most that can be won."""
        return Title(*(replace(part, is_bound=True) if isinstance(part, Won) else part for part in self.parts))

    def without_gains(self) -> str:
        """The sentences that say no gain."""
        marked = "".join(_WON if isinstance(part, Won) else part for part in self.parts)
        return " ".join(each for each in _ENDS.split(marked) if _WON not in each)


_WON = "\0"

_ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z])")
"""Between sentences."""


def without_gains(title: str) -> str:
    """The title without the sentences of its gains; of one without gains itself."""
    return title.without_gains() if isinstance(title, Title) else title


def as_bound(title: str) -> str:
    """The title with its gains as bounds; of one without gains itself."""
    return title.as_bound() if isinstance(title, Title) else title
