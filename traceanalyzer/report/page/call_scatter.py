"""Size against duration of every communication call: where a call waits, it lies above the others of its size."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import text
from traceanalyzer.report.page.log_axis import log_axis
from traceanalyzer.report.page.palette import LEGEND, SERIES

MOST_POINTS = 6_000
"""Points of a scatter; beyond, every n-th call is drawn, and it is said."""

_MARKS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")


def call_scatter(result: Result) -> dict[str, Any] | None:
    """Size against duration of communication calls, a series for each rank and collective.

    `None` without a call of known size.
    """
    frame = result.to_frame()
    frame = frame[frame["size_bytes"].notna() & (frame["size_bytes"] > 0)]
    if frame.empty:
        return None
    every = -(-len(frame) // MOST_POINTS)
    drawn = frame.iloc[::every]
    by_rank = drawn["rank"].nunique() <= len(SERIES)
    marks = {name: place for place, name in enumerate(sorted(drawn["collective"].unique()))}
    series = drawn.groupby(["collective", "rank"] if by_rank else ["collective"])
    traces = [_series(name, own, marks[name[0]], by_rank=by_rank) for name, own in series]
    colours = {label: SERIES[place % len(SERIES)] for place, label in enumerate(sorted({t["meta"] for t in traces}))}
    for trace in traces:
        trace["marker"]["color"] = colours[trace["meta"]]
    layout = {
        "xaxis": log_axis(drawn["size_bytes"].tolist(), Unit.BYTES, "size"),
        "yaxis": log_axis((drawn["end_ns"] - drawn["start_ns"]).clip(lower=1).tolist(), Unit.NS, "duration"),
        "margin": {"l": 70, "r": 10, "t": 10, "b": 50},
        "height": 360,
        **LEGEND,
    }
    if every > 1:
        layout["annotations"] = [_remark(f"one in {every} of {len(frame):,} calls")]
    return {"data": traces, "layout": layout}


def _series(name: Any, own: pd.DataFrame, mark: int, *, by_rank: bool) -> dict[str, Any]:
    collective, rank = name if by_rank else (name[0], None)
    durations = (own["end_ns"] - own["start_ns"]).clip(lower=1)
    label = collective_words(collective)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{label}, rank {rank}" if by_rank else label,
        "meta": f"rank {rank}" if by_rank else label,
        "x": own["size_bytes"].tolist(),
        "y": durations.tolist(),
        "text": [
            f"{text(size, Unit.BYTES)} in {text(ns, Unit.NS)}"
            for size, ns in zip(own["size_bytes"], durations, strict=True)
        ],
        "marker": {"size": 7, "opacity": 0.8, "symbol": _MARKS[mark % len(_MARKS)]},
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }


def _remark(words: str) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "x": 1, "y": 0.99, "xanchor": "right", "yanchor": "top"}
    return {"text": words, "showarrow": False, **place}
