"""Of a job of many ranks those that a short summary shows: who is late, the rank in the middle, who waits most."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from traceanalyzer.findings import Finding

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import HeadlineColumn

MANY_RANKS = 16
"""Beyond these not every rank has a row."""

LATE, MIDDLE, WAITS = "late", "median", "waits"

_MOST_LATE, _OF_ONE_FINDING, _MOST_WAITING = 8, 3, 4


class Shown(Struct, frozen=True):
    """A rank's row of the headline, and why it is shown; `None` where all are."""

    row: "Row[HeadlineColumn]"
    why: str | None = None


def shown(rows: "Sequence[Row[HeadlineColumn]]", findings: Sequence[Finding]) -> list[Shown]:
    """All rows; of many the first ranks of each finding, the rank of median compute, and the worst victims."""
    if len(rows) <= MANY_RANKS:
        return [Shown(row) for row in rows]
    by_rank = {int(row["rank"]): row for row in rows}
    late = [rank for finding in findings for rank in finding.ranks[:_OF_ONE_FINDING] if rank in by_rank]
    late = list(dict.fromkeys(late))[:_MOST_LATE]
    blamed = {rank for finding in findings for rank in finding.ranks}
    others = [row for row in rows if row["rank"] not in blamed] or list(rows)
    by_compute = sorted(others, key=lambda row: row["compute_pct"] or 0)
    middle = by_compute[len(by_compute) // 2]
    by_wait = sorted((row for row in others if row is not middle), key=lambda row: -(row["exposed_comm_ns"] or 0))
    return [
        *(Shown(by_rank[rank], LATE) for rank in late),
        Shown(middle, MIDDLE),
        *(Shown(row, WAITS) for row in by_wait[:_MOST_WAITING]),
    ]


def caption(held: Sequence[Shown], ranks: int) -> str:
    """What a table of such rows says of those that it leaves out."""
    late = "the ranks that findings name, " if any(item.why == LATE for item in held) else ""
    return f"{len(held)} of {ranks:,} ranks: {late}the one in the middle, those that wait most; the report has all"
