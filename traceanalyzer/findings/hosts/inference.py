"""Rules about inference: iterations that the host cannot launch fast enough."""

from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.findings.basis import MOSTLY, plain, severity
from traceanalyzer.findings.engine_tools import captured
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.host_story import HOSTS
from traceanalyzer.meaning.quantities import time_text

if TYPE_CHECKING:
    from traceanalyzer.analyses.names import IterationsColumn

LAUNCH_BOUND_PCT = 30.0
"""An iteration whose GPU idles for more than this waits for its launches."""

GRAPH_SHARE_PCT = 50.0
"""With at least this share of operations replayed by graphs, launches are not what it waits for."""


def launch_bound_iterations(
    iterations: Iterations, *, launch_bound_pct: float = LAUNCH_BOUND_PCT, iteration_graphs_pct: float = GRAPH_SHARE_PCT
) -> list[Finding]:
    """Prefill or decode leaves the GPU idle for over 30 % of an iteration, and graphs replay less than half of it."""
    table = iterations.to_frame()
    if table.empty:
        return []
    complete = table[is_true(table["is_complete"])]
    held: pd.DataFrame = complete if len(complete) else table
    # What a call blocks is no wait for a launch.
    held = held.assign(idle_ns=held["idle_ns"] - held["blocked_ns"])
    figures: list[IterationsColumn] = ["window_ns", "idle_ns", "between_ns", "operations", "graph_operations"]
    mean = held.groupby(["phase", "rank"])[figures].mean().astype("Float64").reset_index()
    mean["idle_pct"] = 100.0 * mean["idle_ns"] / mean["window_ns"]
    mean["graph_pct"] = 100.0 * mean["graph_operations"] / mean["operations"]
    is_within = mean["between_ns"] < MOSTLY * mean["idle_ns"]
    is_bound = (
        is_within
        & (mean["idle_pct"] >= launch_bound_pct)
        & (mean["graph_pct"] < iteration_graphs_pct).fillna(value=False)
    )
    worst = mean[is_bound].sort_values("idle_pct", ascending=False).drop_duplicates("phase")
    return [_finding(row, captured(iterations)) for _, row in worst.iterrows()]


def _finding(row: pd.Series, graphs: str) -> Finding:
    rank, idle_ns = int(row["rank"]), float(row["idle_ns"])
    operations, replayed = float(row["operations"]), float(row["graph_operations"])
    what = f"{operations:,.0f} operations, {f'{replayed:,.0f}' if replayed else 'none'} of them from a graph"
    phase = str(row["phase"]).capitalize()
    return Finding(
        severity=severity(float(row["idle_pct"])),
        title=f"{phase} is bound by launches: rank {rank}'s GPU idles {time_text(idle_ns)}, "
        f"{row['idle_pct']:.0f} % of an iteration ({what}).",
        evidence=plain(row.to_frame().T),
        recommendation=f"Capture iterations as {graphs}, batch more requests, or schedule asynchronously.",
        caveat="Profiling slows the host, most of all with stacks and shapes; time between iterations counts too.",
        gain_ns=round(idle_ns),
        named=(rank,),
        table="iterations",
        about=HOSTS,
    )
