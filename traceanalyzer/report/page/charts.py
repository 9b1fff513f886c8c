"""The charts of a page as data: dictionaries in plotly's form, of scatters and icicles."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
from traceanalyzer.meaning.vocabulary import IDLE, LOOKS, OPAQUE, PARTS, listed
from traceanalyzer.report import assets
from traceanalyzer.report.words import split_steps, steps_over_ranks_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


# The charts of one page as data, which its script draws.


def chart(name: str, figure: Mapping[str, Any] | None, label: str) -> Markup:
    """The place of a chart, which the page's script fills when it scrolls into view; nothing without a figure."""
    if figure is None:
        return Markup()
    return Markup(
        '<div class="chart" id="chart-{name}" role="img" aria-label="{label}"><p class="quiet">Loading chart…</p></div>'
        '<script type="application/json" class="figure" data-for="chart-{name}">{data}</script>'
    ).format(name=name, label=label, data=_embedded_small(figure))


def _embedded_small(figure: Mapping[str, Any]) -> Markup:
    """A figure as JSON; a long one deflated, in base64, as a text."""
    text = embedded(figure)
    return text if len(text) < _PACKED_ABOVE else embedded(assets.packed(text.encode("ascii")))


_PACKED_ABOVE = 10_000
"""Characters: names repeat for every rank, so that a figure of many becomes a sixth."""


def embedded(data: Any) -> Markup:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


# How charts look: colours that mean a kind, others for what is no kind, and where legends stand.


PALETTE_KINDS: Mapping[str, str] = MappingProxyType({kind.key: LOOKS[kind.key].colour for kind in vocabulary.KINDS})

WAIT = LOOKS[vocabulary.WAIT.kind].colour

SERIES = ("#8A6FD6", "#C99700", "#A8324A", "#7C8A1F", "#8A5A3C", "#5F7488", "#B79AE8", "#D8C06A")
"""For ranks and families: far from the kinds' blue, sky blue, vermilion, green, grey and pink, in both themes."""

BLOCK = LOOKS[vocabulary.SEVERAL].colour

LEGEND = {"legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}}
"""Part of a layout: the legend above the plot, from its left edge."""


# Where each rank's time goes, as stacked bars that add up to its window.


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
    across = {"title": {"text": "time (ms)"}, "rangemode": "tozero"}
    down = {"autorange": "reversed", "type": "category"}
    return _figure(bars, across, down, 120 + 24 * len(ranks), barmode="stack")


def _figure(
    data: list[dict[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], height: int, **more: Any
) -> dict[str, Any]:
    """Series over two axes, the legend above them."""
    margin = {"l": 70, "r": 10, "t": 10, "b": 50}
    return {"data": data, "layout": {"xaxis": x, "yaxis": y, "margin": margin, "height": height, **LEGEND, **more}}


# Ticks of a logarithmic axis with their unit written out: 100 µs, 1 ms, 10 ms.


_WIDE = 3
"""Over as many decades powers of ten are enough; over fewer 2 and 5 are marked too, and within one more."""


def log_axis(values: Sequence[float], unit: Unit, title: str) -> dict[str, Any]:
    """A plotly axis for positive values that are stored in `unit`."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    is_narrow = max(values) < 10 * min(values)
    steps = (1,) if high - low > _WIDE else (1, 1.5, 2, 3, 4, 5, 6, 8) if is_narrow else (1, 2, 5)
    ticks = [step * 10**power for power in range(low, high + 1) for step in steps]
    if min(values) == max(values):
        ticks = [min(values)]  # none of the others may lie beside the one value
    return {
        "title": {"text": title},
        "type": "log",
        "tickvals": ticks,
        "ticktext": [text(tick, unit) for tick in ticks],
    }


# Size against duration of every communication call: where a call waits, it lies above the others of its size.


CALL_SCATTER_MOST_POINTS = 6_000
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
    every = -(-len(frame) // CALL_SCATTER_MOST_POINTS)
    drawn = frame.iloc[::every]
    by_rank = drawn["rank"].nunique() <= len(SERIES)
    marks = {name: place for place, name in enumerate(sorted(drawn["collective"].unique()))}
    series = drawn.groupby(["collective", "rank"] if by_rank else ["collective"])
    traces = [_call_scatter_series(name, own, marks[name[0]], by_rank=by_rank) for name, own in series]
    colours = {label: SERIES[place % len(SERIES)] for place, label in enumerate(sorted({t["meta"] for t in traces}))}
    for trace in traces:
        trace["marker"]["color"] = colours[trace["meta"]]
    across = log_axis(drawn["size_bytes"].tolist(), Unit.BYTES, "size")
    up = log_axis((drawn["end_ns"] - drawn["start_ns"]).clip(lower=1).tolist(), Unit.NS, "duration")
    remark = f"one in {every} of {len(frame):,} calls"
    more = {"annotations": [{"text": remark, "showarrow": False, **_REMARK_PLACE}]} if every > 1 else {}
    return _figure(traces, across, up, 360, **more)


def _call_scatter_series(name: Any, own: pd.DataFrame, mark: int, *, by_rank: bool) -> dict[str, Any]:
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


_REMARK_PLACE = {"xref": "paper", "yref": "paper", "x": 1, "y": 0.99, "xanchor": "right", "yanchor": "top"}


# How many operations are launched and not yet started, over time: who waits for whom, host or GPU.


QUEUE_LINES_MOST_RANKS = len(SERIES)
"""Lines that can be told apart; of more ranks those with the emptiest queue are drawn."""


def queue_lines(result: Result) -> dict[str, Any] | None:
    """Mean depth of each rank's launch queue in bins of time; `None` without launches."""
    frame = result.to_frame()
    if frame.empty:
        return None
    emptiest = frame.groupby("rank")["mean_depth"].mean().sort_values().index[:QUEUE_LINES_MOST_RANKS]
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
    up = {"title": {"text": "operations in the queue"}, "rangemode": "tozero"}
    return _figure(lines, {"title": {"text": "time (ms)"}}, up, 340)


# The roofline: every operator's arithmetic intensity against what it achieves, under the device's limits.


ROOFLINE_MOST_POINTS = 400
"""Operators that are drawn, those with most GPU time."""

_FAMILIES = ("gemm", "attention", "convolution", "norm", "softmax", "element-wise")
"""In the order of the legend, each with its colour; others share the last one."""

_DASHES = ("solid", "dash", "dot", "dashdot")


def roofline(result: Result) -> dict[str, Any] | None:
    """Scatter over ranks, area by GPU time, with a roof for each element type; `None` without work of known rate."""
    points = result.to_frame().head(ROOFLINE_MOST_POINTS)
    if points.empty:
        return None
    points = points.assign(area=points["gpu_ns"] / max(int(points["gpu_ns"].max()), 1))
    roofs = _roofs(points)
    families = [name for name in [*_FAMILIES, *points["family"].unique()] if (points["family"] == name).any()]
    series = [_roofline_series(name, points[points["family"] == name]) for name in dict.fromkeys(families)]
    across, up = ({"title": {"text": what}, "type": "log", "dtick": 1} for what in ("FLOPs per byte", "TFLOP/s"))
    return _figure([*roofs, *series], across, up, 420)


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


def _roofline_series(family: str, own: pd.DataFrame) -> dict[str, Any]:
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


# The icicle: a rank's GPU time from pass and module or range down to operator and kernel.


MOST_LEAVES = 1_600
"""Kernels at their places that are drawn of all ranks together, those with most time; a rank's rest is one block."""

ICICLE_MOST_RANKS = 8
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
    ranks = sorted({int(rank) for rank in [*wanted, *apart.index][:ICICLE_MOST_RANKS]})
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
                "shape": ["/" if node[3] == PALETTE_KINDS["comm"] else "" for node in nodes.values()],
                "bgcolor": PALETTE_KINDS["comm"],
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
    return PALETTE_KINDS.get(kind, BLOCK) if most >= NEARLY_ALL * sum(spent.values()) else BLOCK


def _where(path: object, autograd: object) -> list[str]:
    """The pass and what of it an operator belongs to: a backward one is filed under its forward's modules."""
    inside = path.split("/") if isinstance(path, str) else []
    if not isinstance(autograd, str):
        return [short_name(name) for name in inside]
    if autograd != "forward":
        inside = [name for name in inside if not _OF_THE_FORWARD.search(name)]
    return [autograd, *(name for part in inside if (name := short_name(part)) != autograd)]


# Figures of Results as plotly draws them: plain dictionaries for the page, `Figure` objects for a notebook.


FIGURES: Mapping[str, Callable[[Result], dict[str, Any] | None]] = MappingProxyType(
    {
        "headline": breakdown_bars,
        "breakdown": breakdown_bars,
        "calls": call_scatter,
        "queue_depth": queue_lines,
        "efficiency_over_ranks": roofline,
        "operator_kernels": icicle,
    }
)
"""By the Result that each is of."""


def figure(name: str, result: Result) -> "go.Figure | None":
    """The figure of the Result called `name` as a plotly object; `None` where there is nothing to draw.

    Raises:
        KeyError: no figure is made of that Result.
    """
    import plotly.graph_objects as go  # noqa: PLC0415 - slow, and the page does without

    made = FIGURES[name](result)
    return None if made is None else go.Figure(made)


# Every step as a column of its parts: what the page's script draws, of the mean over ranks or of one of them.


MOST_CELLS = 4_000
"""Ranks × steps that are carried one by one; of more only the ranks on top of the timeline, beside the mean."""

_MOST_EPISODES = 4


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
    over = steps_over_ranks_of(results).table.set_index("step").reindex(steps)
    every = sorted(table["rank"].unique().tolist())
    shown = every if len(every) * len(steps) <= MOST_CELLS else [rank for rank in on_top if rank in every]
    return {
        "steps": [int(step) for step in steps],
        "complete": [bool(known) for known in over["is_complete"]],
        "parts": [{"kind": part.kind, "label": part.label} for part in parts],
        "mean": over[columns].astype("float64").round().astype("int64").to_numpy().tolist(),
        "least": over["shortest_ns"].astype("int64").tolist(),
        "most": over["longest_ns"].astype("int64").tolist(),
        "ranks": _of_ranks(table[table["rank"].isin(shown)], columns, steps),
        "left_out": len(every) - len(shown),
        "bare_ns": run_info.unprofiled.mean if run_info and run_info.unprofiled else None,
        "late": _late(results.get("episodes")),
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


def _late(episodes: Episodes | None) -> list[dict[str, Any]]:
    """Ranks, cause and steps of the episodes that findings speak of, costliest first."""
    if episodes is None:
        return []
    rows = [row for row in episodes.rows() if numbers(row["numbers"])]
    return [
        {"ranks": listed(numbers(row["ranks"])), "cause": str(row["cause"]), "steps": list(numbers(row["numbers"]))}
        for row in rows[:_MOST_EPISODES]
    ]


# How busy each rank's GPU is over time, as a strip of stacked columns: one path for each kind keeps pages small.


USE_STRIPS_KINDS = tuple((part.column, part.kind) for part in PARTS if part is not IDLE)
"""From the bottom: column and colour; what is left of a stretch is idle."""

HEIGHT = 100
"""Of a column that is busy throughout."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One rank: paths by kind in a box of `bins` by `HEIGHT`, and its window and what of it is idle in words."""

    rank: int
    bins: int
    paths: tuple[tuple[str, str], ...]
    window: str
    idle: str


def strips(result: Result, breakdown: Result, ranks: Collection[int]) -> list[Strip]:
    """A strip for each of the ranks that has any time; each spans its rank's own window, of which is `breakdown`."""
    # The parts that add up, also where what is unknown makes the others too small.
    frame = result.to_frame().assign(**{column: result.table[column].to_numpy() for column, _ in USE_STRIPS_KINDS})
    whole = breakdown.to_frame().set_index("rank")[["window_ns", "idle_ns"]].to_dict("index")
    known = frame[frame["rank"].isin({*ranks} & {*whole})]  # `breakdown` may have failed
    return [_strip(int(rank), own, whole[rank]) for rank, own in known.groupby("rank")]


def _strip(rank: int, own: pd.DataFrame, whole: Mapping[str, Any]) -> Strip:
    shares = own[[column for column, _ in USE_STRIPS_KINDS]].div(own["bin_ns"], axis=0).astype("float64") * HEIGHT
    tops = HEIGHT - shares.cumsum(axis=1)
    paths = tuple((kind, _path(own["bin"], tops[column], shares[column])) for column, kind in USE_STRIPS_KINDS)
    return Strip(rank, len(own), paths, text(whole["window_ns"], Unit.NS), text(whole["idle_ns"], Unit.NS))


def _path(bins: pd.Series, tops: pd.Series, heights: pd.Series) -> str:
    columns = zip(bins, tops, heights, strict=True)
    return "".join(f"M{place} {top:.1f}h1v{height:.1f}h-1z" for place, top, height in columns if height >= 0.05)
