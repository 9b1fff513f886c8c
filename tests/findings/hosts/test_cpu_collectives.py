"""Who comes last to the CPU's collectives of a capture without GPU work."""

from traceanalyzer.findings.hosts.slow_hosts import last_to_cpu_collectives

from tests.host_builders import host_work
from traceanalyzer.analyses import run

LATE = [(0, "main", "forward", 10), (1, "main", "forward", 12), (1, "main", "metrics", 50)]
GLOO = [(0, "collectives", "gloo:all_reduce", 60), (1, "collectives", "gloo:all_reduce", 8)]
NOTHING = run([], ["headline"])["headline"]


def test_the_rank_that_comes_last_to_the_cpu_s_collectives_is_named_with_what_it_does():
    (found,) = last_to_cpu_collectives(NOTHING, host_work([*LATE, *GLOO]))
    assert found.title.replace("\u202f", " ") == (
        "Rank 0 is 52 ms a step longer in collectives than rank 1, for which it seems to wait there: "
        "rank 1 takes 50 ms longer than others in metrics."
    )
    assert [(row["rank"], row["name"]) for row in found.evidence] == [(1, "metrics")]
    for limit in ({"collectives_apart_times": 8.0}, {"explained_pct": 97.0}):  # 60 over 8, and 50 of 52 ms
        assert last_to_cpu_collectives(NOTHING, host_work([*LATE, *GLOO]), **limit) == []
