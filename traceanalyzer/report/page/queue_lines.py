"""How many operations are launched and not yet started, over time: who waits for whom, host or GPU."""

from typing import Any

from traceanalyzer.analyses import Result
from traceanalyzer.report.page.palette import LEGEND, SERIES

MOST_RANKS = len(SERIES)
"""Lines that can be told apart; of more ranks those with the emptiest queue are drawn."""


def queue_lines(result: Result) -> dict[str, Any] | None:
    """Mean depth of each rank's launch queue in bins of time; `None` without launches."""
    frame = result.to_frame()
    if frame.empty:
        return None
    emptiest = frame.groupby("rank")["mean_depth"].mean().sort_values().index[:MOST_RANKS]
    zero = int(frame["start_ns"].min())
    lines = []
    for place, rank in enumerate(sorted(emptiest)):
        own = frame[frame["rank"] == rank]
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"rank {rank}",
                "x": ((own["start_ns"] - zero) / 1e6).round(3).tolist(),
                "y": own["mean_depth"].astype("float64").round(3).tolist(),
                "line": {"shape": "hv", "width": 1.5, "color": SERIES[place]},
                "hovertemplate": "%{y:.3~r} waiting at %{x:.1f} ms<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": "time (ms)"}},
        "yaxis": {"title": {"text": "operations in the queue"}, "rangemode": "tozero"},
        "margin": {"l": 70, "r": 10, "t": 10, "b": 50},
        "height": 340,
        **LEGEND,
    }
    return {"data": lines, "layout": layout}
