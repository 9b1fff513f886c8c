"""What is said of captures without GPU work."""

import pandas as pd
import pytest

from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.report.words.host import sentences


def said(rows):
    """Of rows (rank, role, name, ms a step)."""
    what = {"collectives": "collective"}
    table = pd.DataFrame(
        [
            {"rank": rank, "role": role, "what": what.get(role, "range"), "name": name, "host_ns": 2_000_000 * ms,
             "steps": 2, "idle_ns": None, "seen_ns": None}
            | dict.fromkeys(("threads", "calls", "launches", "input_bytes"), 0)
            for rank, role, name, ms in rows
        ]
    ).astype({"idle_ns": "Int64", "seen_ns": "Int64"})  # fmt: skip
    return [sentence.replace("\u202f", " ") for sentence in sentences({"host_work": HostWork(table)})[1:]]


LATE = [(0, "main", "forward", 10), (1, "main", "forward", 12), (1, "main", "metrics", 50)]


def test_the_rank_that_comes_last_to_the_cpu_s_collectives_is_named_with_what_it_does():
    assert said([*LATE, (0, "collectives", "gloo:all_reduce", 60), (1, "collectives", "gloo:all_reduce", 8)]) == [
        "The main thread is longest in metrics on rank 1 alone: 50 ms a step.",
        "Of the CPU's collectives the longest is gloo:all_reduce: 8 ms to 60 ms a step, by rank.",
        (
            "Rank 0 is 52 ms a step longer in collectives than rank 1, for which it seems to wait there: "
            "rank 1 takes 50 ms longer than others in metrics."
        ),
    ]


@pytest.mark.parametrize(
    "collectives",
    [
        [],
        [(0, "collectives", "gloo:all_reduce", 60)],  # of the other none is recorded
        [(0, "collectives", "gloo:all_reduce", 60), (1, "collectives", "gloo:all_reduce", 40)],  # not far apart
        [(0, "collectives", "gloo:all_reduce", 600), (1, "collectives", "gloo:all_reduce", 8)],  # not explained
    ],
)
def test_nobody_is_named_where_it_cannot_be_told(collectives):
    assert not any("seems to wait" in sentence for sentence in said([*LATE, *collectives]))
