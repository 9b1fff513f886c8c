"""The icicle: a rank's GPU time from pass and module or range down to operator and kernel."""

import re
from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.meaning.names import short_name
from traceanalyzer.report.page.palette import BLOCK, KINDS, WAIT

MOST_LEAVES = 1_600
"""Kernels at their places that are drawn of all ranks together, those with most time; a rank's rest is one block."""

MOST_RANKS = 8
"""Ranks to choose from; of more those whose GPU time is farthest from the median's."""

NEARLY_ALL = 0.9

_OF_THE_FORWARD = re.compile(r"\b(forward|fwd)\b", re.IGNORECASE)
"""Ranges and modules of the forward pass under which backward operators are filed."""


def icicle(result: Result, first: int | None = None) -> dict[str, Any] | None:
    """A tree of each rank, of which a page shows `first` if it is there, else the lowest; `None` without rows.

    Widths are sums of durations, a block's its whole subtree. Communication holds transfer and wait: it is hatched.
    """
    frame = result.to_frame()
    if frame.empty:
        return None
    totals = frame.groupby("rank")["gpu_ns"].sum()
    apart = (totals - totals.median()).abs().sort_values(ascending=False, kind="stable")
    wanted = [first] if first in apart.index else []
    ranks = sorted({int(rank) for rank in [*wanted, *apart.index][:MOST_RANKS]})
    shown = wanted[0] if wanted else ranks[0]
    data = [
        _trace(rank, frame[frame["rank"] == rank], MOST_LEAVES // len(ranks)) | {"visible": rank == shown}
        for rank in ranks
    ]
    layout = {
        "margin": {"l": 0, "r": 0, "t": 10, "b": 0},
        "height": 480,
        "uniformtext": {"minsize": 12, "mode": "hide"},  # a block that its name does not fit has none
        "meta": {"choose": "Rank"},
    }
    return {"data": data, "layout": layout}


def _trace(rank: int, frame: pd.DataFrame, most: int) -> dict[str, Any]:
    own = frame.nlargest(most, "gpu_ns")
    nodes = tree(own, f"rank {rank}", int(frame["gpu_ns"].sum()))
    number = {key: str(place) for place, key in enumerate(nodes)} | {"": ""}
    return {
        "type": "icicle",
        "name": str(rank),
        "ids": [number[key] for key in nodes],
        "labels": [node[1] for node in nodes.values()],
        "text": [_last_part(node[1]) for node in nodes.values()],
        "textinfo": "text",
        "parents": [number[node[0]] for node in nodes.values()],
        "values": [node[2] / 1e6 for node in nodes.values()],
        "marker": {
            "colors": [node[3] for node in nodes.values()],
            "pattern": {
                "shape": ["/" if node[3] == KINDS["comm"] else "" for node in nodes.values()],
                "bgcolor": KINDS["comm"],
                "fgcolor": WAIT,
                "size": 16,
                "solidity": 0.12,
            },
        },
        "branchvalues": "total",
        "maxdepth": 6,
        "leaf": {"opacity": 1},
        "outsidetextfont": {"color": "#1a1a1a"},  # of the root, which else takes the page's
        "tiling": {"orientation": "v"},
        "hovertemplate": "%{label}<br>%{value:.4s} ms, %{percentRoot:.1%} of the rank<extra></extra>",
    }


def _last_part(name: str) -> str:
    """What fits into a block: `mm` of `aten::mm`; the whole name is there on hover."""
    return re.split(r"::|: ", name)[-1] or name


def tree(own: pd.DataFrame, root: str, total_ns: int) -> dict[str, tuple[str, str, int, str]]:
    """By id: parent, label, duration and colour; only operators and kernels have a kind's colour."""
    nodes = {root: ("", root)}
    spent: dict[str, Counter[str]] = {root: Counter(rest=total_ns)}
    for row in own.astype({"path": "object", "autograd": "object"}).to_dict("records"):
        where = _where(row["path"], row["autograd"])
        labels = [*where, row["operator"], short_name(row["kernel"])]
        parent = root
        for depth, label in enumerate(labels):
            # A kernel's full name tells kernels of one short name apart.
            key = f"{parent}\n{row['kernel'] if depth == len(labels) - 1 else label}"
            nodes[key] = (parent, label)
            kind = row["kind"] if depth >= len(where) else "several"
            spent.setdefault(key, Counter())[kind] += int(row["gpu_ns"])
            parent = key
    rest = total_ns - int(own["gpu_ns"].sum())
    if rest:
        nodes[f"{root}\nrest"], spent[f"{root}\nrest"] = (root, "(shorter ones)"), Counter(several=rest)
    return {key: (*names, spent[key].total(), _colour(spent[key])) for key, names in nodes.items()}


def _colour(spent: Mapping[str, int]) -> str:
    """The colour of the kind that takes nearly all of a block's time: a product that clears its output is compute."""
    kind, most = max(spent.items(), key=itemgetter(1))
    return KINDS.get(kind, BLOCK) if most >= NEARLY_ALL * sum(spent.values()) else BLOCK


def _where(path: object, autograd: object) -> list[str]:
    """The pass and what of it an operator belongs to: a backward one is filed under its forward's modules."""
    inside = path.split("/") if isinstance(path, str) else []
    if not isinstance(autograd, str):
        return [short_name(name) for name in inside]
    if autograd != "forward":
        inside = [name for name in inside if not _OF_THE_FORWARD.search(name)]
    return [autograd, *(name for part in inside if (name := short_name(part)) != autograd)]
