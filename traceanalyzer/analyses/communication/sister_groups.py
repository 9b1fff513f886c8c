"""What the same transfer takes in sister groups: as many ranks on as many hosts that run the same collective."""

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.collectives import transfer_kinds
from traceanalyzer.analyses.communication.hosts import hosts_of
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.kinds import MESSAGES
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, only, table_of

_POOL = ("job", "kind", "ranks", "hosts", "size_bytes")
"""What transfers of one spread have in common."""

_ALIKE = ("job", "kind", "ranks", "hosts", "step")

_SIGMAS = 3.0

_LEAST_KNOWN = 3
"""Transfers quicker than the usual ones that a deviation is told from."""


def instances_of(members: pd.DataFrame, ranks: pd.DataFrame, jobs: Mapping[int, int]) -> pd.DataFrame:
    """A row for each instance of `Members` of which transfer and size are known; `jobs` are the ranks' (`jobs_of`).

    Columns `instance`, `job`, `kind` (`transfer_kinds`), `ranks` and `hosts` (how many), `among` (the ranks), `step`
    (-1 without), `size_bytes`, `transfer_ns`.
    """
    if members.empty:
        return pd.DataFrame()
    is_held = members["instance"].notna() & members["transfer_ns"].notna() & members["size_bytes"].notna()
    is_held &= ~(members["is_only_wait"] | members["moves_only"]).astype(bool)
    held = members[is_held & members["is_timed"].astype(bool)]
    if held.empty:
        return pd.DataFrame()
    own = Groups.of(held, ["instance"])
    rank, at = held["rank"].to_numpy(dtype=np.int64), own.of_row
    host = pd.factorize(pd.Series(rank).map(hosts_of(ranks)))[0]
    first = held.take(own.first)
    table = table_of(
        {
            "instance": first["instance"].to_numpy(dtype=np.int64),
            "job": first["rank"].map(jobs).to_numpy(dtype=np.int64),
            "kind": transfer_kinds(first["collective"]).to_numpy(dtype=object),
            "ranks": own.counts(),
            "hosts": own.distinct(host),
            "step": first["step"].to_numpy(dtype=np.int64, na_value=NONE),
            "size_bytes": own.largest(held["size_bytes"].to_numpy(dtype=np.int64)),
            "transfer_ns": own.smallest(_since_all_came(held)),
        }
    )
    return table.assign(among=_among(rank, at, len(own)))[array_of(table, "ranks") > 1]


def _since_all_came(held: pd.DataFrame) -> np.ndarray:
    """What follows in each row's call the last start of all that it exchanges messages with.

    What a call waited for one of its peers is no other one's transfer. It ends with the last of its messages; at the
    other end of each stands another call, so that the shorter of the two tells a slow message from those beside it.
    """
    calls = Groups.of(held, ["rank", "call"])
    shortest: np.ndarray = calls.smallest(held["transfer_ns"].to_numpy(dtype=np.int64))[calls.of_row]
    return shortest


def _among(rank: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """The ranks of each instance as text; there are few sets of them."""
    order = np.lexsort((rank, at))
    pieces = np.split(rank[order], np.cumsum(np.bincount(at, minlength=count))[:-1])
    known: dict[bytes, str] = {}
    texts = [known.setdefault(own.tobytes(), ",".join(map(str, own))) for own in pieces]
    return np.array(texts, dtype=object)


def usual_ns(instances: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """For each instance the mean transfer of its group's calls of that kind, size and step; and the sister groups'.

    Of these the median, of two in the middle the shorter: links are never too fast. Of groups none of which moves as
    many bytes what each takes for more of them, or for fewer at the same rate; NaN without sister groups.
    """
    cells = Groups.of(instances, [*_ALIKE, "size_bytes", "among"])
    count = cells.counts()
    own_ns = cells.sums(array_of(instances, "transfer_ns")) / np.maximum(count, 1)
    alike = Groups.of({name: np.asarray(cells.keys[name]) for name in (*_ALIKE, "size_bytes")}, [*_ALIKE, "size_bytes"])
    beside_ns = _median_of_others(alike.of_row, own_ns)
    lone = np.isnan(beside_ns)
    if lone.any():
        beside_ns[lone] = _of_other_sizes(cells.keys, own_ns, np.flatnonzero(lone))
    return own_ns[cells.of_row], beside_ns[cells.of_row]


def is_beyond_chance(instances: pd.DataFrame, own_ns: np.ndarray, beside_ns: np.ndarray) -> np.ndarray:
    """Which instances' times, as `usual_ns` has them, chance does not explain: in their step, or in all together.

    How transfers of one kind and size differ is told, as a deviation of their logarithms, by those that are quicker
    than their step's usual one (links are slow, never too fast), of all steps; where these are fewer than three (of two
    groups none), by those that are quicker than their own group's usual one, of which two differ by more than one from
    several. Three deviations are beyond. Of fewer than three such nothing is known, and everything counts.
    """
    cells = Groups.of(instances, [*_POOL, "step", "among"])
    own, beside = np.maximum(own_ns[cells.first], 1.0), beside_ns[cells.first]
    pool, step, group = (Groups.of(cells.keys, [*_POOL, *names]).of_row for names in ((), ("step",), ("among",)))
    known, deviation = _deviation(pool, step, own)
    of_group, in_steps = _deviation(pool, group, own)
    deviation = np.where(known, deviation, np.where(of_group, np.sqrt(2) * in_steps, 0.0))
    more = np.log(own / np.where(beside > 0, beside, np.nan))
    count = np.bincount(group)[group]
    mean = np.bincount(group, np.nan_to_num(more))[group] / count
    is_beyond = np.isnan(more) | (more >= _SIGMAS * deviation) | (mean >= _SIGMAS * deviation / np.sqrt(count))
    found: np.ndarray = is_beyond[cells.of_row]
    return found


def _deviation(pool: np.ndarray, group: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value whether three of its pool or more are quicker than their group's usual one, and by how much."""
    under = np.log(np.maximum(_usual(group, values) / values, 1.0))
    count = np.bincount(pool, under > 0)
    return (count >= _LEAST_KNOWN)[pool], np.sqrt(np.bincount(pool, under**2) / np.maximum(count, 1))[pool]


def _usual(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value what its group's longest one is held against: the median without it, of two the lesser."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group)
    usual: np.ndarray = values[order][np.cumsum(sizes) - sizes + np.maximum(sizes - 2, 0) // 2][group]
    return usual


def is_extra(
    instances: pd.DataFrame, members: pd.DataFrame, staged: Collection[int], jobs: Mapping[int, int]
) -> np.ndarray:
    """Which instances only their group's ranks run, though all ranks of the job should do the same.

    No other rank of the job runs the collective with as many bytes, matched or not. Messages are no such thing, and
    stages of pipelines, the ranks `staged`, differ by design.
    """
    ranks_of_job = pd.Series(jobs).value_counts()
    staged_jobs = {jobs[rank] for rank in staged if rank in jobs}
    calls = only(members, ["rank", "size_bytes"]).assign(kind=members["collective"].astype("object")).drop_duplicates()
    calls = calls.dropna().assign(job=calls["rank"].map(jobs))
    run_by = calls.groupby(["job", "kind", "size_bytes"])["rank"].nunique()
    keys = pd.MultiIndex.from_frame(instances[["job", "kind", "size_bytes"]])
    own = array_of(instances, "ranks")
    is_alone = run_by.reindex(keys).to_numpy() == own
    found: np.ndarray = is_alone & (own < ranks_of_job.reindex(instances["job"]).to_numpy())
    return found & ~instances["job"].isin(staged_jobs).to_numpy() & (instances["kind"] != MESSAGES).to_numpy()


def _median_of_others(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value the median of the others of its group, of two the lesser; NaN for one alone."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group)
    start = (np.cumsum(sizes) - sizes)[group[order]]
    size, place = sizes[group[order]], np.arange(len(values)) - start
    middle = np.maximum(size - 2, 0) // 2
    taken = np.minimum(start + np.where(place > middle, middle, middle + 1), len(values) - 1)
    found = np.empty(len(values))
    found[order] = np.where(size > 1, values[order][taken], np.nan)
    return found


def _of_other_sizes(keys: Mapping[str, np.ndarray], own_ns: np.ndarray, lone: np.ndarray) -> np.ndarray:
    """What sister groups take at most for as many bytes as each of these cells moves; messages are not scaled."""
    columns = {name: np.asarray(keys[name]) for name in (*_ALIKE, "size_bytes", "among")}
    alike = Groups.of(columns, list(_ALIKE)).of_row
    rows_of = {int(alike[rows[0]]): rows for rows in rows_of_each(alike)}
    size, among = columns["size_bytes"].astype(float), pd.factorize(columns["among"])[0]
    found = np.full(len(lone), np.nan)
    for place, cell in enumerate(lone):
        if columns["kind"][cell] == MESSAGES:
            continue
        rows = rows_of[int(alike[cell])]
        rows = rows[among[rows] != among[cell]]
        if len(rows):
            most_ns = at_most_ns(size[cell], size[rows], own_ns[rows])
            each = np.sort(pd.Series(most_ns).groupby(among[rows]).min().to_numpy())
            found[place] = each[(len(each) - 1) // 2]
    return found


def at_most_ns(size_bytes: float, sizes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """What so many bytes take at most over links that move each of these sizes in that time.

    Fewer take no longer, more no longer than at the same rate.
    """
    most_ns: np.ndarray = times_ns * np.maximum(1.0, size_bytes / np.maximum(sizes, 1))
    return most_ns
