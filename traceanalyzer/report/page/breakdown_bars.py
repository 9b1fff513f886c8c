"""Where each rank's time goes, as stacked bars that add up to its window."""

from typing import Any

from traceanalyzer.analyses import Result
from traceanalyzer.meaning.vocabulary import LOOKS, OPAQUE, PARTS
from traceanalyzer.report.page.palette import LEGEND


def breakdown_bars(result: Result) -> dict[str, Any] | None:
    """A bar for each rank, in ms, of the complete steps (`headline`) or of the window (`breakdown`)."""
    rows = [row for row in result.rows() if row["window_ns"]]
    if not rows:
        return None
    ranks = [f"rank {row['rank']}" for row in rows]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": part.label,
            "y": ranks,
            "x": [None if row[part.column] is None else round(row[part.column] / 1e6, 6) for row in rows],
            "marker": {"color": LOOKS[part.kind].colour},
            "hovertemplate": "%{x:.4~r} ms<extra>%{y}: %{fullData.name}</extra>",
        }
        for part in PARTS
        if part is not OPAQUE or any(row[part.column] for row in rows)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "time (ms)"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "type": "category"},
        "margin": {"l": 70, "r": 10, "t": 10, "b": 50},
        "height": 120 + 24 * len(ranks),
        **LEGEND,
    }
    return {"data": bars, "layout": layout}
