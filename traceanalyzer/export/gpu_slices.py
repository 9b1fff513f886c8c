"""Every GPU operation as slices by stream: a communication call is its wait, then its transfer."""

from collections.abc import Iterator

import pandas as pd

from traceanalyzer.export.flows import of_instance, of_operation
from traceanalyzer.export.rows import COLOURS, sliced
from traceanalyzer.meaning.names import short_name
from traceanalyzer.model.schema import NONE

_ORDER = ("instance", "comes_after", "comes_before")


def streams(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and slices of each stream, by its number.

    Args:
        ops: the rank's rows of `Timeline`.
        calls: its rows of `perfetto.told_calls`.
        rank: its number.
    """
    if ops.empty:
        return
    slices = _slices(ops, calls.set_index("call"), rank)
    for number, own in slices.groupby(ops["stream"].to_numpy()[slices.index]):
        yield f"stream {number}", own


def _slices(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> pd.DataFrame:
    own = calls.reindex(ops["call"].fillna(NONE).astype("int64"))
    lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    wait_ns = own["wait_ns"].astype("Int64").fillna(0).to_numpy(dtype="int64").clip(0, lengths)
    kind = ops["kind"].astype("str")
    whole = sliced(
        ops.assign(name=[short_name(name) for name in ops["name"]]),
        category=kind,
        colour=kind.map(COLOURS),
        args=_contents(ops, own),
    )
    first = _arrows(ops, own, rank)
    waits = whole.assign(
        end_ns=ops["start_ns"] + wait_ns,
        name="wait · " + whole["name"],
        category="wait",
        colour=COLOURS["wait"],
        **first,
    )
    moves = whole.assign(start_ns=ops["start_ns"] + wait_ns, **first)
    moves.loc[wait_ns > 0, ["flows_in", "flows_out"]] = None
    return pd.concat([waits[wait_ns > 0], moves[(wait_ns == 0) | (wait_ns < lengths)]])


def _arrows(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> pd.DataFrame:
    """From the call that launched it to each operation, and from rank to rank of each collective."""
    arrive: list[tuple[int, ...] | None] = []
    leave: list[tuple[int, ...] | None] = []
    columns = (ops["operation"], ops["launch"].notna(), *(calls[name] for name in _ORDER))
    for operation, has_launch, instance, is_later, is_earlier in zip(*(one.tolist() for one in columns), strict=True):
        launched = (of_operation(rank, operation),) if has_launch else ()
        shared = () if pd.isna(instance) else (of_instance(int(instance)),)
        arrive.append((*launched, *(shared if is_later else ())) or None)
        leave.append((shared if is_earlier else ()) or None)
    return pd.DataFrame({"flows_in": arrive, "flows_out": leave}, index=ops.index, dtype=object)


def _contents(ops: pd.DataFrame, calls: pd.DataFrame) -> list[dict[str, object]]:
    """What a click on each operation shows; what is not known is left out."""
    told = ("name", "step", "launch", "operator", "shapes", "path")
    columns = {name: ops[name].to_numpy(dtype=object) for name in told}
    rest = [name for name in calls if name not in ("rank", "size_bytes", *_ORDER[1:])]
    columns |= {name: calls[name].to_numpy(dtype=object) for name in rest}
    sizes = ops["size_bytes"].reset_index(drop=True).fillna(calls["size_bytes"].reset_index(drop=True))
    columns["size_bytes"] = sizes.to_numpy(dtype=object)
    known = {name: ~pd.isna(values) for name, values in columns.items()}
    return [{name: values[row] for name, values in columns.items() if known[name][row]} for row in range(len(ops))]
