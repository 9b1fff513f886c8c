"""The icicle: one rank's GPU time from module or range down to operator and kernel."""

from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.names import short_name

MOST_LEAVES = 800
"""Kernels at their places that are drawn, those with most time; the rest is one block beside them."""

_COLOURS = {"compute": "#0072B2", "comm": "#56B4E9", "copy": "#009E73"}
_INNER = "#BBBBBB"


def icicle(result: Result) -> dict[str, Any] | None:
    """Tree of the first rank; widths are sums of durations, a block's its whole subtree. `None` without rows."""
    frame = result.to_frame()
    if frame.empty:
        return None
    rank = int(frame["rank"].min())
    own = frame[frame["rank"] == rank].nlargest(MOST_LEAVES, "gpu_ns")
    total = int(frame.loc[frame["rank"] == rank, "gpu_ns"].sum())
    nodes = _nodes(own, f"rank {rank}", total)
    number = {key: str(place) for place, key in enumerate(nodes)} | {"": ""}
    return {
        "data": [
            {
                "type": "icicle",
                "ids": [number[key] for key in nodes],
                "labels": [node[1] for node in nodes.values()],
                "parents": [number[node[0]] for node in nodes.values()],
                "values": [node[2] / 1e6 for node in nodes.values()],
                "marker": {"colors": [node[3] for node in nodes.values()]},
                "branchvalues": "total",
                "maxdepth": 6,
                "tiling": {"orientation": "v"},
                "hovertemplate": "%{label}<br>%{value:.4s} ms, %{percentRoot:.1%} of the rank<extra></extra>",
            }
        ],
        "layout": {"margin": {"l": 0, "r": 0, "t": 10, "b": 0}, "height": 480},
    }


def _nodes(own: pd.DataFrame, root: str, total_ns: int) -> dict[str, tuple[str, str, int, str]]:
    """By id: parent, label, duration and colour."""
    nodes = {root: ("", root, total_ns, _INNER)}
    for row in own.astype({"path": "object", "autograd": "object"}).to_dict("records"):
        where = row["path"].split("/") if isinstance(row["path"], str) else []
        operator = row["operator"] + (f" ({row['autograd']})" if row["autograd"] in ("backward", "recompute") else "")
        labels = [*where, operator, short_name(row["kernel"])]
        parent = root
        for depth, label in enumerate(labels):
            # A kernel's full name tells kernels of one short name apart.
            key = f"{parent}\n{row['kernel'] if depth == len(labels) - 1 else label}"
            colour = _COLOURS.get(row["kind"], _INNER) if depth >= len(where) else _INNER
            spent = nodes[key][2] if key in nodes else 0
            nodes[key] = (parent, label, spent + int(row["gpu_ns"]), colour)
            parent = key
    rest = total_ns - int(own["gpu_ns"].sum())
    return nodes | ({f"{root}\nrest": (root, "(shorter ones)", rest, _INNER)} if rest else {})
