"""The kernels and operators that take most GPU time, printed: `--top`."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.analyses import Result
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import is_known
from traceanalyzer.report.contents import Report


def show(report: Report, count: int, console: Console) -> None:
    """Print the kernels and the operators that take most GPU time."""
    of = _window(report)
    held = _first(report.results["kernels_over_ranks"], count)
    if not held.empty:
        console.print(_top(f"Kernels and copies of a mean rank, {of}", held, "name", "kind", console.width))
    held = _first(report.results["operators_over_ranks"], count)
    if not held.empty:
        title = f"Operators by the GPU time of what they launch themselves, of a mean rank, {of}"
        console.print(_top(title, held, "operator", "autograd", console.width))
    else:
        console.print("No operators were recorded (Nsight Systems needs --pytorch=autograd-nvtx).", highlight=False)


def _first(result: Result, count: int) -> pd.DataFrame:
    """The first of those that take any time; rows stand longest first."""
    frame: pd.DataFrame = result.to_frame()
    return frame[frame["total_ns"] > 0].head(count)


def _window(report: Report) -> str:
    """What the tables are of: other than the breakdown above, all that is looked at, incomplete steps included."""
    windows = report.results["ranks"].table["window"].unique()
    return str(windows[0]) if len(windows) == 1 else "all that is looked at"


def _top(title: str, rows: pd.DataFrame, name: str, beside: str, width: int) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("Name", overflow="ellipsis", no_wrap=True, max_width=max(24, width - 56))
    table.add_column(beside.capitalize(), no_wrap=True)
    for heading in ("Calls", "Total ms", "Mean µs", "Share %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.to_dict("records"):
        calls, mean = ("", "") if not row["calls"] else (f"{row['calls']:,.0f}", f"{row['mean_ns'] / 1e3:,.1f}")
        figures = (calls, f"{row['total_ns'] / 1e6:,.2f}", mean)
        told = "" if not is_known(row[beside]) else str(row[beside])
        table.add_row(escape(short_name(str(row[name]))), escape(told), *figures, f"{row['share_pct']:.1f}")
    return table
