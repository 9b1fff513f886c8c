"""What operators say of why a rank is late: its host is slow at what all do, or it does work of its own."""

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.communication.stragglers import Stragglers
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.findings.basis import about, plain
from traceanalyzer.findings.beside import LEAST_OWN_PCT, named, own_share_pct, own_work, slow_host
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.stragglers import cause_of, costly

_MOST_ROWS = 3


def slow_hosts(stragglers: Stragglers, operators: Result) -> list[Finding]:
    """A rank whose host is late makes the calls that all make, and takes at least 1.2 times as long for them."""
    found = []
    ranks = operators.table["rank"].unique()
    for row in costly(stragglers):
        slow = slow_host(operators, row["rank"]) if row["cause"] == "host" else None
        if slow is not None:
            others = [rank for rank in ranks if rank != row["rank"]]
            whose = f"rank {others[0]}'s" if len(others) == 1 else "the others'"
            found.append(
                Finding(
                    rule="slow_hosts",
                    severity="medium",
                    title=f"Rank {row['rank']}'s host makes the same {slow.calls:,} operator calls as {whose} "
                    f"in the capture and takes {slow.times:.2g} times as long for them.",
                    evidence=plain(slow.rows),
                    table="operators",
                    part_of=about("host", row["rank"]),
                )
            )
    return found


def work_of_their_own(stragglers: Stragglers, efficiency: Result, kernels: Result, pipeline: Pipeline) -> list[Finding]:
    """A rank that computes longer spends at least a tenth of it in what no other rank runs."""
    found = []
    stages = dict(pipeline.table[["rank", "pipeline"]].itertuples(index=False))
    for row in costly(stragglers):
        rank = row["rank"]
        work = own_work(efficiency, rank, set(kernels.table["rank"]) - {rank})
        share = own_share_pct(work, kernels, rank)
        if row["cause"] == "compute" and share >= LEAST_OWN_PCT:
            found.append(
                Finding(
                    rule="work_of_their_own",
                    severity="medium",
                    title=f"{share:.0f} % of rank {rank}'s compute in the capture is work that no other rank runs, "
                    f"most of it {named(work.iloc[0])}.",
                    evidence=plain(work.head(_MOST_ROWS)),
                    table="efficiency",
                    part_of=cause_of(row, stages),
                )
            )
    return found
