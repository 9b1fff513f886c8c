"""The charts of a page as data: dictionaries in plotly's form, of scatters and icicles."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd
from markupsafe import Markup

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.columns import Unit, numbers, text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import LOOKS, OPAQUE, PARTS, listed
from traceanalyzer.report import assets
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import split_steps

if TYPE_CHECKING:
    import plotly.graph_objects as go


# A chart's place on the page, and its data as JSON.


def chart(name: str, figure: Mapping[str, Any], label: str) -> Markup:
    """The place of a chart, which the page's script fills when it scrolls into view."""
    return Markup(
        '<div class="chart" id="chart-{name}" role="img" aria-label="{label}"><p class="quiet">Loading chart…</p></div>'
        '<script type="application/json" class="figure" data-for="chart-{name}">{data}</script>'
    ).format(name=name, label=label, data=embedded(assets.packed(embedded(figure).encode("ascii"))))


def embedded(data: Any) -> Markup:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


# How charts look: colors of what is no kind, and the form that all share.


SERIES = ("#8A6FD6", "#C99700", "#A8324A", "#7C8A1F", "#8A5A3C", "#5F7488", "#B79AE8", "#D8C06A")
"""For ranks and families: far from the kinds' colors in both themes."""

_MARKS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")

_DASHES = ("solid", "dash", "dot", "dashdot")


def _figure(
    data: list[dict[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], height: int, **more: Any
) -> dict[str, Any]:
    """Series over two axes, the legend above them from its left edge."""
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    margin = {"l": 70, "r": 10, "t": 10, "b": 50}
    return {
        "data": data,
        "layout": {"xaxis": x, "yaxis": y, "margin": margin, "height": height, "legend": legend, **more},
    }


def _points(name: str, x: pd.Series, y: pd.Series, texts: list[str], hover: str, **more: Any) -> dict[str, Any]:
    """One series of a scatter."""
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": x.tolist(), "y": y.tolist(), "text": texts,
        "hovertemplate": hover, **more,
    }  # fmt: skip


def breakdown_bars(result: Result) -> dict[str, Any] | None:
    """A bar for each rank, in ms, of the complete steps, stacked from parts that add up."""
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
    across = {"title": {"text": "time (ms)"}, "rangemode": "tozero"}
    down = {"autorange": "reversed", "type": "category"}
    return _figure(bars, across, down, 120 + 24 * len(ranks), barmode="stack")


def log_axis(values: Sequence[float], unit: Unit, title: str) -> dict[str, Any]:
    """A logarithmic axis for positive values that are stored in `unit`, its ticks with their units: `100 µs`, `1 ms`.

    Over many decades powers of ten are marked, over few also what lies between.
    """
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    is_narrow = max(values) < 10 * min(values)
    steps = (1,) if high - low > 3 else (1, 1.5, 2, 3, 4, 5, 6, 8) if is_narrow else (1, 2, 5)
    ticks = [step * 10**power for power in range(low, high + 1) for step in steps]
    if min(values) == max(values):
        ticks = [min(values)]  # none of the others may lie beside the one value
    return {
        "title": {"text": title},
        "type": "log",
        "tickvals": ticks,
        "ticktext": [text(tick, unit) for tick in ticks],
    }


def call_scatter(result: Result) -> dict[str, Any] | None:
    """Size against duration of communication calls, a series for each rank and collective: waits lie above.

    `None` without a call of known size.
    """
    frame = result.to_frame()
    frame = frame[frame["size_bytes"].notna() & (frame["size_bytes"] > 0)]
    if frame.empty:
        return None
    every = -(-len(frame) // LAYOUT.scatter_points)
    drawn = frame.iloc[::every]
    drawn = drawn.assign(ns=(drawn["end_ns"] - drawn["start_ns"]).clip(lower=1))
    by_rank = drawn["rank"].nunique() <= len(SERIES)
    marks, traces = sorted(drawn["collective"].unique()), []
    for (collective, *rank), own in drawn.groupby(["collective", "rank"] if by_rank else ["collective"]):
        label = collective_words(collective)
        which = f"rank {rank[0]}" if rank else label
        texts = [f"{text(size, Unit.BYTES)} in {text(ns, Unit.NS)}"
                 for size, ns in zip(own["size_bytes"], own["ns"], strict=True)]  # fmt: skip
        marker = {"size": 7, "opacity": 0.8, "symbol": _MARKS[marks.index(collective) % len(_MARKS)]}
        name = f"{label}, {which}" if rank else label
        traces.append(_points(name, own["size_bytes"], own["ns"], texts, "%{text}<extra>%{fullData.name}</extra>",
                              meta=which, marker=marker))  # fmt: skip
    labels = sorted({trace["meta"] for trace in traces})
    for trace in traces:
        trace["marker"]["color"] = SERIES[labels.index(trace["meta"]) % len(SERIES)]
    remark = {"text": f"one in {every} of {len(frame):,} calls", "showarrow": False, "xref": "paper", "yref": "paper",
              "x": 1, "y": 0.99, "xanchor": "right", "yanchor": "top"}  # fmt: skip
    more = {"annotations": [remark]} if every > 1 else {}
    across, up = (
        log_axis(drawn["size_bytes"].tolist(), Unit.BYTES, "size"),
        log_axis(drawn["ns"].tolist(), Unit.NS, "duration"),
    )
    return _figure(traces, across, up, 360, **more)


_FAMILIES = ("gemm", "attention", "convolution", "norm", "softmax", "element-wise")
"""In the order of the legend, each with its color; others share the last one."""


def roofline(result: Result) -> dict[str, Any] | None:
    """Operators' arithmetic intensity against what they reach, area by GPU time, under a roof for each element type.

    `None` without work of known rate.
    """
    points = _over_ranks(result.to_frame()).head(LAYOUT.scatter_points)
    if points.empty:
        return None
    area = (points["gpu_ns"] / max(int(points["gpu_ns"].max()), 1)).astype("float64")
    points = points.assign(size=6 + 24 * area**0.5)
    families = dict.fromkeys([*_FAMILIES, *points["family"].unique()])
    own = {name: points[points["family"] == name] for name in families}
    series = [
        _points(
            name, rows["flops_per_byte"], rows["tflops_per_s"],
            (rows["operator"] + " " + rows["shapes"].fillna("").str.slice(0, 80)).tolist(),
            "%{text}<br>%{y:.4s} TFLOP/s at %{x:.4s} FLOPs/byte, %{customdata:.3s} ms<extra></extra>",
            customdata=(rows["gpu_ns"] / 1e6).tolist(),
            marker={"color": SERIES[min(list(families).index(name), len(_FAMILIES))], "opacity": 0.7,
                    "size": rows["size"].tolist()},
        )
        for name, rows in own.items() if len(rows)
    ]  # fmt: skip
    across, up = ({"title": {"text": what}, "type": "log", "dtick": 1} for what in ("FLOPs per byte", "TFLOP/s"))
    return _figure([*_roofs(points), *series], across, up, 420)


def _over_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """All ranks' work of known FLOPs and bytes added up by operator, shapes and element type, most GPU time first."""
    rows = rows.assign(flops=(rows["flops"] - rows["masked_flops"]).astype("float64"))
    rows = rows[(rows["flops"] > 0) & (rows["bytes"].astype("float64") > 0)]
    keys = ["family", "operator", "shapes", *_PEAKS]
    sums = rows.groupby(keys, dropna=False, observed=True)[["flops", "bytes", "gpu_ns"]].sum().reset_index()
    sums = sums[sums["gpu_ns"] > 0].sort_values("gpu_ns", ascending=False, kind="stable")
    rate = sums["flops"] / sums["gpu_ns"] / 1000
    return sums.assign(flops_per_byte=sums["flops"] / sums["bytes"], tflops_per_s=rate)


_PEAKS = ["element_type", "peak_tflops_per_s", "peak_gbytes_per_s"]


def _roofs(points: pd.DataFrame) -> list[dict[str, Any]]:
    """For each known peak the lesser of bandwidth · intensity and the peak."""
    low, high = float(points["flops_per_byte"].min()) / 2, float(points["flops_per_byte"].max()) * 2
    roofs = []
    for place, (kind, tflops, gbytes) in enumerate(points[_PEAKS].dropna().drop_duplicates().itertuples(index=False)):
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


# The icicle: a rank's GPU time from pass and module or range down to operator and kernel.


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
    ranks = sorted({int(rank) for rank in [*wanted, *apart.index][: len(SERIES)]})
    shown = wanted[0] if wanted else ranks[0]
    data = [
        _trace(rank, frame[frame["rank"] == rank], LAYOUT.icicle_leaves // len(ranks)) | {"visible": rank == shown}
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
    comm = LOOKS[vocabulary.COMM.kind].colour
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
                "shape": ["/" if node[3] == comm else "" for node in nodes.values()],
                "bgcolor": comm,
                "fgcolor": LOOKS[vocabulary.WAIT.kind].colour,
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
    """The color of the kind that takes most of a block's time; another's where none takes half."""
    kind, most = max(spent.items(), key=itemgetter(1))
    return LOOKS[kind if kind in _OF_KIND and 2 * most > sum(spent.values()) else vocabulary.SEVERAL].colour


_OF_KIND = frozenset(kind.key for kind in vocabulary.KINDS)


def _where(path: object, autograd: object) -> list[str]:
    """The pass and what of it an operator belongs to: a backward one is filed under its forward's modules."""
    inside = path.split("/") if isinstance(path, str) else []
    if not isinstance(autograd, str):
        return [short_name(name) for name in inside]
    if autograd != "forward":
        inside = [name for name in inside if not _OF_THE_FORWARD.search(name)]
    return [autograd, *(name for part in inside if (name := short_name(part)) != autograd)]


# Figures of Results as plotly draws them: plain dictionaries for the page, `Figure` objects for a notebook.


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, and the words around it on a page."""

    figure: Callable[[Result], dict[str, Any] | None]
    title: str = ""
    note: str = ""


CHARTS: Mapping[str, Chart] = MappingProxyType(
    {
        "headline": Chart(breakdown_bars),
        "calls": Chart(
            call_scatter,
            "Size and duration of every call",
            "A call above others of its size may wait for another rank.",
        ),
        "efficiency": Chart(
            roofline,
            "Roofline",
            "Each point is an operator with its shapes; its area is its GPU time. Under the slope it is memory-bound, "
            "under the flat part compute-bound. A point above a roof was served by a cache.",
        ),
        "operator_kernels": Chart(
            icicle,
            "GPU time by module, operator and kernel",
            "Width is the sum of durations; click a block to look inside. Color is the kind of operation; "
            "communication (transfer and wait) is striped.",
        ),
    }
)
"""By the Result that each is of; those with a title are a page's."""


def charts(first: int | None) -> dict[str, Chart]:
    """The charts; the icicle shows the rank `first` first."""
    by_module = CHARTS["operator_kernels"]
    return {**CHARTS, "operator_kernels": replace(by_module, figure=partial(icicle, first=first))}


def figure(name: str, result: Result) -> "go.Figure | None":
    """The figure of the Result called `name` as a plotly object; `None` where there is nothing to draw.

    Raises:
        KeyError: no figure is made of that Result.
    """
    import plotly.graph_objects as go  # noqa: PLC0415 - slow, and the page does without

    made = CHARTS[name].figure(result)
    return None if made is None else go.Figure(made)


# Every step as a column of its parts: what the page's script draws, of the mean over ranks or of one of them.


def step_chart(results: Results, on_top: Sequence[int] = (), run_info: RunInfo | None = None) -> dict[str, Any] | None:
    """Steps, parts, times in ns, and who was late when; `None` with fewer than two steps.

    `mean` has each step's parts as means over the ranks, `least` and `most` are the shortest and longest rank's step.
    """
    table, parts = split_steps(results)
    steps = sorted(table["step"].dropna().unique().tolist()) if len(table) else []
    if len(steps) < 2:
        return None
    parts = tuple(part for part in parts if table[part.column].any())
    columns = [part.column for part in parts]
    by_step = table.groupby("step")
    windows = by_step["window_ns"]
    every = sorted(table["rank"].unique().tolist())
    shown = every if len(every) * len(steps) <= LAYOUT.step_chart_cells else [rank for rank in on_top if rank in every]
    return {
        "steps": [int(step) for step in steps],
        "complete": by_step["is_complete"].all().tolist(),
        "parts": [{"kind": part.kind, "label": part.label} for part in parts],
        "mean": by_step[columns].mean().astype("float64").round().astype("int64").to_numpy().tolist(),
        "least": windows.min().tolist(),
        "most": windows.max().tolist(),
        "ranks": _of_ranks(table[table["rank"].isin(shown)], columns, steps),
        "left_out": len(every) - len(shown),
        "bare_ns": run_info.unprofiled.mean if run_info and run_info.unprofiled else None,
        "late": _straggler_episodes(results.get("episodes")),
    }


def _of_ranks(table: pd.DataFrame, columns: Sequence[str], steps: Sequence[int]) -> dict[str, list[list[int] | None]]:
    """By rank its parts in each step; `None` in which it has no such step."""
    place = {step: number for number, step in enumerate(steps)}
    found: dict[str, list[list[int] | None]] = {}
    parts = table[list(columns)].to_numpy(dtype="int64").tolist()
    for rank, step, own in zip(table["rank"].tolist(), table["step"].tolist(), parts, strict=True):
        if step in place:
            found.setdefault(str(rank), [None] * len(steps))[place[step]] = own
    return found


def _straggler_episodes(episodes: Episodes | None) -> list[dict[str, Any]]:
    """Ranks, cause and steps of the episodes that findings speak of, costliest first."""
    if episodes is None:
        return []
    rows = [row for row in episodes.rows() if numbers(row["numbers"])]
    return [
        {"ranks": listed(numbers(row["ranks"])), "cause": str(row["cause"]), "steps": list(numbers(row["numbers"]))}
        for row in rows[: LAYOUT.step_chart_episodes]
    ]
