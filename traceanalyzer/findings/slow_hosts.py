"""A late host that makes the calls that all make, and takes longer for them."""

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.beside import slow_host
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late_words import numbers
from traceanalyzer.findings.lateness import is_said, of_ranks


def slow_hosts(episodes: Episodes, operators: Result) -> list[Finding]:
    """A rank whose host is late makes the calls that all make, and takes at least 1.2 times as long for them."""
    found = []
    ranks = operators.table["rank"].unique()
    for row in episodes.rows():
        late = numbers(row["ranks"])
        if not is_said(row) or row["cause"] != "host" or row["name"] is not None or len(late) > 1:
            continue
        slow = slow_host(operators, late[0])
        if slow is not None:
            others = [rank for rank in ranks if rank != late[0]]
            whose = f"rank {others[0]}'s" if len(others) == 1 else "the others'"
            found.append(
                Finding(
                    rule="slow_hosts",
                    severity="medium",
                    title=f"Rank {late[0]}'s host makes the same {slow.calls:,} operator calls as {whose} "
                    f"in the capture and takes {slow.times:.2g} times as long for them.",
                    evidence=plain(slow.rows),
                    table="operators",
                    part_of=of_ranks(row),
                )
            )
    return found
