"""What a comparison says of communication: collectives that came, went or changed, and their overlap."""

from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.host.host_names import UNATTRIBUTED
from traceanalyzer.diff import Comparison, joins, metrics
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import digits, per_cent, signed, text


def sentences(comparison: Comparison, run: str, unit: str) -> Iterator[str]:
    """Collectives that are new, gone, or called more or less often `unit` (`a step`), then overlap."""
    table = comparison.table(run, "nccl")
    if table is None:
        return
    for row in table.frame.to_dict("records"):
        is_one = (table.frame["collective"] == row["collective"]).sum() == 1
        name = collective_words(row["collective"]) + ("" if is_one else f" of {_element_type(row.get('dtype'))}")
        yield from _collective(name, row, unit, _phases(comparison, run, row["collective"], is_one=is_one))
    yield from _overlap(comparison, run)


def _element_type(dtype: object) -> str:
    return element_types(dtype) if isinstance(dtype, str) else "unknown type"


def _phases(comparison: Comparison, run: str, collective: object, *, is_one: bool) -> dict[str, str]:
    """For each side in which phases of training its calls lie: `13 in forward, 13 in backward`.

    They are counted of a collective's calls together: where these are of several element types, only the phase is said
    that all of them lie in.
    """
    table = comparison.table(run, "comm_phases")
    if table is None:
        return {}
    own = table.frame[table.frame["collective"] == collective]
    made = {}
    for side in ("base", "other"):
        held = own[own[f"{side}_calls"].fillna(0) > 0].sort_values("phase")
        pieces = [
            f"{digits(float(calls))} in {phase}" if is_one else f"in {phase}"
            for phase, calls in zip(held["phase"], held[f"{side}_calls"], strict=True)
        ]
        is_known = bool(set(held["phase"]) - {UNATTRIBUTED}) and (is_one or len(pieces) == 1)
        made[side] = f" ({', '.join(pieces)})" if is_known else ""
    return made


def _collective(name: str, row: dict[str, object], unit: str, phases: dict[str, str]) -> Iterator[str]:
    base, other = (_sums(row, side) for side in ("base", "other"))
    if row["status"] == joins.NEW:
        yield f"{name} is NEW: {other}{phases.get('other', '')}."
    elif row["status"] == joins.REMOVED:
        yield f"{name} is REMOVED: {base} before{phases.get('base', '')}."
    elif row["change_calls"]:
        yield f"{name}: {digits(row['base_calls'])} → {digits(row['other_calls'])} calls {unit}, {_bytes(row)}."  # type: ignore[arg-type]


def _sums(row: dict[str, object], side: str) -> str:
    calls, size = row[f"{side}_calls"], row.get(f"{side}_size_bytes")
    sized = f", {text(size, Unit.BYTES)}" if size is not None and not pd.isna(size) else ""
    number = f"{digits(float(calls))} {'call' if calls == 1 else 'calls'}"  # type: ignore[arg-type]
    return f"{number}{sized}, {text(row[f'{side}_total_ns'], Unit.NS)}"


def _bytes(row: dict[str, object]) -> str:
    base, other = row.get("base_size_bytes"), row.get("other_size_bytes")
    if base is None or other is None or pd.isna(base) or pd.isna(other):
        return "of bytes that a capture does not tell"
    if base != other:
        return f"{text(base, Unit.BYTES)} → {text(other, Unit.BYTES)}"
    calls = row["base_calls"], row["other_calls"]
    each = " → ".join(text(float(base) / float(count), Unit.BYTES) for count in calls)  # type: ignore[arg-type]
    what = "larger" if float(calls[1]) < float(calls[0]) else "smaller"  # type: ignore[arg-type]
    return f"the same {text(base, Unit.BYTES)} in {'fewer' if what == 'larger' else 'more'}, {what} calls ({each} each)"


def _overlap(comparison: Comparison, run: str) -> Iterator[str]:
    base, other = (metrics.row(comparison.metrics, "overlap_pct", one) for one in (comparison.base.label, run))
    if base is None or other is None or pd.isna(other["change_pct_points"]) or not other["change_pct_points"]:
        return
    points = signed(float(other["change_pct_points"]))
    both = f"{_over_ranks(base)} → {_over_ranks(other)}"
    yield f"Overlap of communication with compute: {both}, {points} percentage points."


def _over_ranks(row: pd.Series) -> str:
    low, high = row["rank_min"], row["rank_max"]
    if pd.isna(low) or low == high:
        return f"{per_cent(float(row['value']))} %"
    return f"{per_cent(float(row['value']))} % ({per_cent(float(low))} to {per_cent(float(high))} over ranks)"
