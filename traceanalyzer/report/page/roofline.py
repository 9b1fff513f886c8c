"""The roofline: every operator's arithmetic intensity against what it achieves, under the device's limits."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.report.page.palette import LEGEND, SERIES

MOST_POINTS = 400
"""Operators that are drawn, those with most GPU time."""

_FAMILIES = ("gemm", "attention", "convolution", "norm", "softmax", "element-wise")
"""In the order of the legend, each with its colour; others share the last one."""

_DASHES = ("solid", "dash", "dot", "dashdot")


def roofline(result: Result) -> dict[str, Any] | None:
    """Scatter over ranks, area by GPU time, with a roof for each element type; `None` without work of known rate."""
    points = _points(result.to_frame()) if len(result) else pd.DataFrame()
    if points.empty:
        return None
    roofs = _roofs(points)
    families = [name for name in [*_FAMILIES, *points["family"].unique()] if (points["family"] == name).any()]
    series = [_series(name, points[points["family"] == name]) for name in dict.fromkeys(families)]
    return {
        "data": [*roofs, *series],
        "layout": {
            "xaxis": {"title": {"text": "FLOPs per byte"}, "type": "log", "dtick": 1},
            "yaxis": {"title": {"text": "TFLOP/s"}, "type": "log", "dtick": 1},
            "margin": {"l": 70, "r": 10, "t": 10, "b": 50},
            "height": 420,
            **LEGEND,
        },
    }


def _points(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that are drawn, those with most GPU time; `area` is of the largest."""
    table = frame.head(MOST_POINTS)
    return table.assign(area=table["gpu_ns"] / max(int(table["gpu_ns"].max()), 1) if len(table) else 0.0)


def _roofs(points: pd.DataFrame) -> list[dict[str, Any]]:
    """For each known peak the lesser of bandwidth · intensity and the peak."""
    known = points.dropna(subset=["element_type", "peak_tflops_per_s", "peak_gbytes_per_s"])
    kinds = known[["element_type", "peak_tflops_per_s", "peak_gbytes_per_s"]].drop_duplicates()
    low, high = float(points["flops_per_byte"].min()) / 2, float(points["flops_per_byte"].max()) * 2
    roofs = []
    for place, (kind, tflops, gbytes) in enumerate(kinds.itertuples(index=False)):
        ridge = 1000 * tflops / gbytes
        corners = [low, *([ridge] if low < ridge < high else []), max(high, ridge)]
        roofs.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"peak {kind}: {tflops:.0f} TFLOP/s, {gbytes:,.0f} GB/s",
                "x": corners,
                "y": [min(tflops, corner * gbytes / 1000) for corner in corners],
                "line": {"color": "#888888", "width": 1.5, "dash": _DASHES[place % len(_DASHES)]},
                "hoverinfo": "name",
            }
        )
    return roofs


def _series(family: str, own: pd.DataFrame) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": family,
        "x": own["flops_per_byte"].tolist(),
        "y": own["tflops_per_s"].tolist(),
        "text": (own["operator"] + " " + own["shapes"].fillna("").str.slice(0, 80)).tolist(),
        "customdata": (own["gpu_ns"] / 1e6).tolist(),
        "marker": {
            "color": SERIES[_FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)],
            "opacity": 0.7,
            "size": (6 + 24 * own["area"].astype("float64") ** 0.5).tolist(),
        },
        "hovertemplate": "%{text}<br>%{y:.4s} TFLOP/s at %{x:.4s} FLOPs a byte, %{customdata:.3s} ms<extra></extra>",
    }
