"""Who waits for whom in collectives of the CPU, where no GPU work is recorded beside them."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives
from traceanalyzer.analyses.host.host_time import steps_of_hosts
from traceanalyzer.analyses.names import HostMeetingsColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, picked, table_of, under_each_other, without_rows
from traceanalyzer.selection import host_spans, step_at

_LEAST_MET = 0.95
"""Of the instances: so many last beyond the start of each rank's, or they are not the same collective on all ranks."""

_WAITS = tuple(
    f"{backend}{name}"
    for backend in CPU_BACKENDS
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
)
"""Those that end nowhere before all ranks have come: of others some ranks leave at once."""


class HostMeetings(Result[HostMeetingsColumn]):
    """One row for each rank, of captures of CPUs alone; none where it is not known which calls belong together."""

    title: ClassVar[str] = "Waiting in collectives of the CPU"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "calls": Column.count("Collectives, in the complete steps, for which all ranks have to come.", is_aside=True),
        "last": Column.count("How many of them this rank came to last.", is_aside=True),
        "wait_ns": Column.time(
            "Time in which its host did nothing but wait until the last rank came.", is_news_when_zero=True
        ),
        "later_ns": Column.time("How much later than the first rank it came, of all added."),
        "exchange_ns": Column.time("Time in which its host did nothing but wait once all had come."),
        "window_ns": Column.time("Length of the complete steps on the host."),
        "steps": Column.count("Complete steps that it is of.", adds=Adds.NONE),
        "wait_per_step_ns": Column.time("wait_ns / steps.", adds=Adds.DERIVED),
        "later_per_step_ns": Column.time("later_ns / steps.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        wait, later = (ratio(table[name], table["steps"]) for name in ("wait_ns", "later_ns"))
        return self._with(
            table,
            {
                "wait_per_step_ns": wait.round().astype("Int64"),
                "later_per_step_ns": later.round().astype("Int64"),
            },
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's collectives that all have to come to: in which step, the how manieth there, and when."""
    steps = steps_of_hosts(trace)
    if not trace.gpu_ops.empty or steps.empty:
        return pd.DataFrame()
    table = cpu_collectives(trace)
    table = picked(table, table["name"].isin(_WAITS).to_numpy())
    starts, ends = host_spans(steps)
    at = step_at(starts, ends, array_of(table, "start_ns"))
    table = picked(table, at != NONE).assign(step=array_of(steps, "step")[at[at != NONE]])
    return table_of(
        {
            **{name: table[name].array for name in ("step", "name", "start_ns", "since_ns", "end_ns")},
            "place": table.groupby(["step", "name"]).cumcount().to_numpy(),
            "window_ns": np.full(len(table), int((ends - starts).sum())),
            "steps": np.full(len(table), len(steps)),
        }
    )


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks) -> HostMeetings:
    """Matched by step, name and place in the step; hosts' clocks are put together by the median ends of collectives."""
    held = {rank: part for rank, part in parts.items() if len(part)}
    if len(held) < 2 or len(held) < len(parts):
        return HostMeetings(without_rows(HostMeetings.columns))
    every = under_each_other([part.assign(rank=rank) for rank, part in held.items()])
    groups = Groups.of(every, ["step", "name", "place"])
    is_whole = groups.counts() == len(held)
    every = picked(every, is_whole[groups.of_row]).assign(instance=groups.of_row[is_whole[groups.of_row]])
    every = every.sort_values(["instance", "rank"], kind="stable")
    hosts = ranks.table.set_index("rank")["host"].reindex(sorted(held))
    times = [array_of(every, name).reshape(-1, len(held)) for name in ("start_ns", "since_ns", "end_ns")]
    starts, since, ends = (own - _ahead_ns(times[-1], hosts) for own in times)
    came = starts.max(axis=1)
    if not is_whole.all() or not len(came) or (came < ends.min(axis=1)).mean() < _LEAST_MET:
        return HostMeetings(without_rows(HostMeetings.columns))
    waits = np.clip(np.minimum(came[:, None], ends) - since, 0, None)
    is_last = np.arange(len(held)) == starts.argmax(axis=1)[:, None]
    numbers = sorted(held)
    return HostMeetings(
        table_of(
            {
                "rank": np.array(numbers),
                "calls": np.full(len(numbers), len(came)),
                "last": is_last.sum(axis=0),
                "wait_ns": waits.sum(axis=0),
                "later_ns": (starts - starts.min(axis=1)[:, None]).sum(axis=0),
                "exchange_ns": np.clip(ends - np.maximum(since, came[:, None]), 0, None).sum(axis=0),
                **{name: np.array([held[rank][name].iloc[0] for rank in numbers]) for name in ("window_ns", "steps")},
            }
        )
    )


def _ahead_ns(ends: np.ndarray, hosts: pd.Series) -> np.ndarray:
    """By how much each rank's clock is ahead, as its host's: by the ends, a row for each instance, a column for a rank.

    0 of one host, or where hosts are not known: its ranks' collectives need not end at one moment.
    """
    codes, names = pd.factorize(hosts)
    ahead_ns = np.zeros(len(codes), dtype=np.int64)
    if len(names) > 1 and len(ends):
        off = ends - np.median(ends, axis=1, keepdims=True)
        for code in range(len(names)):
            ahead_ns[codes == code] = round(float(np.median(off[:, codes == code])))
    return ahead_ns
