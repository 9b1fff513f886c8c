"""Which rank a process is and which ranks each communicator joins, where the program itself wrote it into the capture.

A program writes NVTX ranges for that, in any domain and of any length: `rank 3 of 8`, and around one collective of
each process group `group 5 of ranks 1,3,5,7` or `group 5 of ranks 1,3,5,7: mesh_tp`. The collective's payload tells
the group's communicator. The runners do so at the start of what Nsight Systems records.
"""

import re

import numpy as np
import pandas as pd

RANK = re.compile(r"\W*(?:global[ _])?rank\W{0,3}_?(\d+)(?: of (\d+))?\W*", re.IGNORECASE)
"""The rank, and how many there are."""

_GROUP = re.compile(r"group (\S{1,200}) of ranks (\d{1,9}(?:,\d{1,9})*)(?:: (.*))?")

COLUMNS = ("process", "device", "communicator", "rank", "ranks", "group_ranks", "description")
"""`communicator` is the group's own name where no payload tells it; `group_ranks` text such as `1,3,5,7`."""


def rank_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """`rank` and `ranks` (NA where not said) of each process that says one rank only, by process."""
    said = _matching(ranges, RANK)
    numbers = said.assign(
        rank=[int(match[1]) for match in said["match"]],
        ranks=pd.array([match[2] and int(match[2]) for match in said["match"]], "Int64"),
    )
    each = numbers.groupby("process")[["rank", "ranks"]].agg(["nunique", "first"])
    each = each[each[("rank", "nunique")] == 1]
    return pd.DataFrame({"rank": each[("rank", "first")], "ranks": each[("ranks", "first")]})


def introduced(ranges: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """One row for each process and group that the program names (`COLUMNS`).

    Args:
        ranges: all NVTX ranges.
        calls: NCCL's, with `process`, `thread`, `start_ns` and `communicator` (text; NA without a payload).
    """
    said, numbers = _matching(ranges, _GROUP), rank_ranges(ranges)["rank"]
    rows = []
    for one in said.itertuples(index=False):
        ranks = tuple(map(int, one.match[2].split(",")))
        own = numbers.get(one.process)
        if own in ranks:
            communicator = _communicator(one, calls)
            rows.append((one.process, pd.NA, communicator or one.match[1], ranks.index(own), len(ranks), one.match[2],
                         one.match[3] or ""))  # fmt: skip
    types = {"process": "int64", "device": "Int64", "communicator": "str", "rank": "Int64", "ranks": "Int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(types)


def _communicator(one: object, calls: pd.DataFrame) -> str | None:
    """That of the call inside a group's range."""
    starts = calls["start_ns"].to_numpy()
    is_inside = (starts >= one.start_ns) & (starts < one.end_ns)  # type: ignore[attr-defined]  # a row
    is_own = (calls["process"] == one.process) & (calls["thread"] == one.thread)  # type: ignore[attr-defined]
    found = calls.loc[np.asarray(is_inside & is_own), "communicator"].dropna().unique()
    return str(found[0]) if len(found) == 1 else None


def _matching(ranges: pd.DataFrame, pattern: re.Pattern[str]) -> pd.DataFrame:
    """Ranges whose name is all pattern, with the `match`."""
    if not len(ranges):
        return ranges.assign(match=[])
    matches = {name: pattern.fullmatch(str(name)) for name in ranges["name"].cat.categories}
    names = [name for name, match in matches.items() if match]
    own = ranges[ranges["name"].isin(names).to_numpy()]
    return own.assign(match=[matches[name] for name in own["name"]])
