"""What an export draws of a rank: steps, ranges, gaps by cause, and every operation by stream, as slices of tracks."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer import vocabulary
from traceanalyzer.names import short_name
from traceanalyzer.schema import NONE
from traceanalyzer.vocabulary import DATA, HOST, MARK_VIEWER

COLUMNS = ("order", "track", "name", "start_ns", "end_ns", "colour", "args")
"""Of a table of slices; tracks stand in order of `order`, then by name."""

COLOURS: Mapping[str, str] = {
    **{kind: vocabulary.viewer_colour(kind) for kind in vocabulary.LOOKS},
    "mark": MARK_VIEWER,
}
"""Trace-event viewers have fixed colours: those nearest to the kinds'. A viewer that ignores them colours by name."""

_OF_CAUSE = {cause.key: COLOURS[cause.part.kind] for cause in vocabulary.IDLE_CAUSES}

_STEPS, _RANGES, _PATH, _GAPS, _STREAMS = range(5)


def of_rank(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All slices of a rank, times as recorded, from its rows of `perfetto.NEEDED`."""
    calls = _calls(tables["calls"], tables["call_waits"])
    parts = [
        _steps(tables["steps"]),
        _ranges(tables["gpu_ranges"]),
        _path(tables["path_stretches"], tables["clocks"]),
        _gaps(tables["gaps"]),
        _operations(tables["timeline"], calls),
    ]
    return pd.concat([part[list(COLUMNS)] for part in parts if len(part)], ignore_index=True)


def _steps(steps: pd.DataFrame) -> pd.DataFrame:
    steps = steps[steps["start_ns"].notna()].astype({"step": "int64", "start_ns": "int64", "window_ns": "int64"})
    whole = steps["is_complete"].fillna(value=False).astype(bool).tolist()
    return steps.assign(
        order=_STEPS, track="steps", colour=COLOURS["mark"], end_ns=steps["start_ns"] + steps["window_ns"],
        name=[f"step {step}" for step in steps["step"]], args=[{"complete": is_complete} for is_complete in whole],
    )  # fmt: skip


def _ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    return ranges.assign(
        order=_RANGES, colour=COLOURS["mark"], args=None,
        track=["ranges" if depth == 0 else f"ranges, {depth} deep" for depth in ranges["depth"]],
        name=[short_name(name) for name in ranges["name"]],
    )  # fmt: skip


def _path(path: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """The rank's stretches of the critical path, on its own clock."""
    offset_ns = int(clocks["offset_ns"].fillna(0).sum())
    category = path["category"].astype("str")
    what = path["operator"].where(category.isin((HOST.key, DATA.key)), path["name"])
    return path.assign(
        order=_PATH, track="critical path", start_ns=path["start_ns"] + offset_ns, end_ns=path["end_ns"] + offset_ns,
        colour=category.map({**COLOURS, HOST.key: COLOURS[HOST.part.kind]}).fillna(COLOURS["mark"]),
        name=[f"{kind}: {short_name(name)}" if isinstance(name, str) else kind
              for kind, name in zip(category, what, strict=True)],
        args=[{"operator": name} if isinstance(name, str) else None for name in path["operator"]],
    )  # fmt: skip


def _gaps(gaps: pd.DataFrame) -> pd.DataFrame:
    causes = gaps["cause"].astype("str")
    doing = [None if pd.isna(name) else short_name(name) for name in gaps["doing"]]
    return gaps.assign(
        order=_GAPS, track="idle", end_ns=gaps["start_ns"] + gaps["length_ns"],
        name=[f"idle: {cause}" for cause in causes], args=[{"host": name} if name else None for name in doing],
        colour=causes.map(_OF_CAUSE),
    )  # fmt: skip


def _calls(calls: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Communication calls by number: what they are, and what is known of their waits."""
    told = waits[["call", "wait_ns", "waits_for", "instance", "why_not_split"]]
    return (
        calls[["call", "collective", "group", "dtype", "size_bytes", "peers"]].merge(told, on="call").set_index("call")
    )


def _operations(ops: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """A slice for each operation, and before a transfer the wait that is part of its call."""
    own = calls.reindex(ops["call"].fillna(NONE).astype("int64"))
    wait_ns = own["wait_ns"].astype("Int64").fillna(0).to_numpy(dtype="int64")
    wait_ns = wait_ns.clip(0, (ops["end_ns"] - ops["start_ns"]).to_numpy())
    ops = ops.assign(
        order=_STREAMS + ops["stream"].rank(method="dense").astype("int64"),
        track=[f"stream {number}" for number in ops["stream"]],
        name=[short_name(name) for name in ops["name"]],
        colour=ops["kind"].astype("str").map(COLOURS),
        args=_contents(ops, own),
    )
    waits = ops.assign(end_ns=ops["start_ns"] + wait_ns, name="wait · " + ops["name"], colour=COLOURS["wait"])
    moves = ops.assign(start_ns=ops["start_ns"] + wait_ns)
    return pd.concat([waits[wait_ns > 0], moves[(wait_ns == 0) | (moves["start_ns"] < moves["end_ns"])]])


def _contents(ops: pd.DataFrame, calls: pd.DataFrame) -> list[dict[str, object]]:
    """What a click on each operation shows; what is not known is left out."""
    columns = {"name": ops["name"], "step": ops["step"], "launch": ops["launch"]}
    columns |= {name: calls[name] for name in calls if name != "wait_ns"}
    columns["size_bytes"] = ops["size_bytes"].reset_index(drop=True).fillna(calls["size_bytes"].reset_index(drop=True))
    frame = pd.DataFrame({name: values.to_numpy(dtype=object) for name, values in columns.items()})
    return [{key: value for key, value in row.items() if not pd.isna(value)} for row in frame.to_dict("records")]
