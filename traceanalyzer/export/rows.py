"""Rows that the analysis adds above a rank's streams: steps, ranges, the critical path and idle time by cause."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import DATA, HOST, MARK_VIEWER

SLICE_COLUMNS = ("name", "category", "start_ns", "end_ns", "colour", "args", "flows_out", "flows_in")
"""Of a table of slices; flows are tuples of numbers, of arrows that begin and end at the slice."""

COLOURS: Mapping[str, str] = {
    **{kind: vocabulary.viewer_colour(kind) for kind in vocabulary.LOOKS},
    "mark": MARK_VIEWER,
}
"""Trace-event viewers have fixed colours: those nearest to the kinds'. A viewer that ignores them colours by name."""

_NAMES = {cause.key: cause.part.label for cause in vocabulary.IDLE_CAUSES}
_OF_CAUSE = {cause.key: COLOURS[cause.part.kind] for cause in vocabulary.IDLE_CAUSES}


def sliced(table: pd.DataFrame, **columns: object) -> pd.DataFrame:
    """The table with these columns of `SLICE_COLUMNS`; those that are not given are empty."""
    rest = {name: None for name in SLICE_COLUMNS if name not in columns and name not in table}
    return table.assign(**rest, **columns)[list(SLICE_COLUMNS)]


def steps(table: pd.DataFrame) -> pd.DataFrame:
    """Each step's window on the GPU."""
    held = table[table["start_ns"].notna()].astype({"step": "int64", "start_ns": "int64", "window_ns": "int64"})
    whole = is_true(held["is_complete"]).tolist()
    return sliced(
        held, category="step", colour=COLOURS["mark"], end_ns=held["start_ns"] + held["window_ns"],
        name=[f"step {step}" for step in held["step"]], args=[{"complete": is_complete} for is_complete in whole],
    )  # fmt: skip


def ranges(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The user's ranges where their operations run, by their depth."""
    names = [short_name(name) for name in table["name"]]
    every = sliced(table, category="range", colour=COLOURS["mark"], name=names)
    return {
        "ranges" if depth == 0 else f"ranges, {depth} deep": every[table["depth"] == depth]
        for depth in sorted(table["depth"].unique())
    }


def path(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path."""
    category = table["category"].astype("str")
    what = table["operator"].where(category.isin((HOST.key, DATA.key)), table["name"])
    return sliced(
        table,
        category="critical path",
        colour=category.map({**COLOURS, HOST.key: COLOURS[HOST.part.kind]}).fillna(COLOURS["mark"]),
        name=[f"{kind}: {short_name(name)}" if isinstance(name, str) else kind
              for kind, name in zip(category, what, strict=True)],
        args=[{"operator": name} if isinstance(name, str) else None for name in table["operator"]],
    )  # fmt: skip


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which nothing runs, by their cause."""
    causes = table["cause"].astype("str")
    doing = [None if pd.isna(name) else short_name(name) for name in table["doing"]]
    return sliced(
        table, category="idle", end_ns=table["start_ns"] + table["length_ns"],
        name=causes.map(_NAMES), args=[{"host": name} if name else None for name in doing],
        colour=causes.map(_OF_CAUSE),
    )  # fmt: skip
