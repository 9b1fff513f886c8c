"""What only one run does in a step, or much more of: copies, blocking CPU calls, matrix products."""

import re
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.analyses.statistics import LEAST_PCT, SHARE
from traceanalyzer.diff.captures import Capture, profiler
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, per_cent, text
from traceanalyzer.meaning.vocabulary import named

COPIES = "copies a step"

WAITS = "blocking CPU calls per step"

PRODUCTS = "matrix products a step"

SHARES = "ranks' shares of the model FLOPs"

NAMES = (COPIES, WAITS, PRODUCTS, SHARES)

_WAYS: dict[str, tuple[str, str]] = {
    "HtoD": ("source_memory", "from {} memory to the GPU"),
    "DtoH": ("target_memory", "from the GPU to {} memory"),
}
"""Directions of copies: the column that names the host's memory, and words. Copies between GPUs are communication."""

_WAITING = re.compile(r"^(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)?Synchronize\b")

Amounts = Mapping[str, pd.Series]
"""By what is done how much of it each rank does in a step, the dearest first."""


def of(captures: Sequence[Capture]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each of these kinds in which runs differ its name and what each run does of what they do not do alike.

    Nothing of a kind that a capture does not tell, and nothing of CPUs where profilers differ: they name calls in
    other ways.
    """
    readers = [(COPIES, _copies, Unit.BYTES)]
    if len({profiler(capture) for capture in captures}) == 1:
        readers.append((WAITS, _waits, Unit.COUNT))
    for name, read, unit in readers:
        amounts = [read(capture) for capture in captures]
        known = [own for own in amounts if own is not None]
        if len(known) == len(captures) and (differing := _unequal(known)):
            yield name, tuple(_listed(own, differing, unit) for own in known)
    if products := more_products(captures):
        yield PRODUCTS, products
        return
    shares = [own for capture in captures if (own := _flop_shares(capture)) is not None]
    if len(shares) == len(captures) and len({len(own) for own in shares}) == 1:
        by_rank = [*zip(*shares, strict=True)]
        if any(max(pct) - min(pct) > 100 * RUN_TO_RUN for pct in by_rank):
            yield SHARES, tuple(", ".join(f"{per_cent(round(pct))}%" for pct in own) for own in shares)


def more_products(captures: Sequence[Capture]) -> tuple[str, ...] | None:
    """What each run does of the few matrix products of which one does more or less than another.

    `None` where it is not most of the products of which all do the same: another model, or another batch.
    """
    amounts = [_products(capture) for capture in captures]
    known = [own for own in amounts if own]
    if len(known) < len(captures):
        return None
    differing, every = _unequal(known), set.union(*map(set, known))
    if not 0 < len(differing) < SHARE * len(every):
        return None
    return tuple(_listed(own, differing, Unit.COUNT) for own in known)


def _listed(own: Amounts, names: Sequence[str], unit: Unit) -> str:
    return named([_summary(own[name], unit, name) for name in names if name in own and own[name].any()])


def _summary(amount: pd.Series, unit: Unit, name: str) -> str:
    """`12 waits`, `40 products on rank 1`, `6 products on rank 0 and 16 on rank 1`, or a range."""
    done = amount[amount > 0]
    if len(done) == len(amount) and done.max() - done.min() <= RUN_TO_RUN * done.max():
        return f"{text(done.mean(), unit)} {name}"
    if len(done) == 1:
        return f"{text(done.iloc[0], unit)} {name} on rank {done.index[0]}"
    return f"{text(amount.min(), unit)} to {text(amount.max(), unit)} {name} on a rank"


def _unequal(amounts: Sequence[Amounts]) -> list[str]:
    """Of what the rank that does least, or most, does another amount in one run than in another."""
    names, nothing = dict.fromkeys(name for own in amounts for name in own), pd.Series([0.0])
    of_runs = {name: [own.get(name, nothing) for own in amounts] for name in names}
    ends = {name: [[own.min() for own in runs], [own.max() for own in runs]] for name, runs in of_runs.items()}
    return [
        name for name, own in ends.items() if any(100 * (max(end) - min(end)) > LEAST_PCT * max(end) for end in own)
    ]


def _copies(capture: Capture) -> Amounts | None:
    """Bytes of uploads and downloads by memory, of those whose time is worth a word."""
    frame, windows = capture.table("copies"), capture.table("breakdown")
    if frame is None or windows is None or not capture.is_exact:
        return None
    least_ns, made = LEAST_PCT / 100 * windows["window_ns"].mean(), {}
    for direction, (column, words) in _WAYS.items():
        own = frame[frame["direction"] == direction]
        for memory, rows in own.groupby(own[column].astype("object").where(own[column].notna(), "unknown")):
            if (cost_ns := rows.groupby("rank")["total_ns"].sum().max()) >= least_ns > 0:
                made[words.format(memory)] = (cost_ns, _by_rank(capture, rows, "size_bytes"))
    return {name: made[name][1] for name in sorted(made, key=lambda name: -made[name][0])}


def _waits(capture: Capture) -> Amounts | None:
    """Synchronising calls; any difference of their number counts."""
    frame = capture.table("cuda_api")
    if frame is None or not capture.is_exact or not capture.steps:
        return None
    own = frame[frame["name"].astype("str").str.contains(_WAITING)]
    return {str(name): _by_rank(capture, rows, "calls") for name, rows in own.groupby("name", observed=True)}


def _products(capture: Capture) -> Amounts | None:
    frame = capture.table("matrix_products")
    if frame is None or not capture.is_exact:
        return None
    names = frame["product"].astype("str") + " " + frame["dtype"].astype("str").map(element_types)
    return {str(name): _by_rank(capture, rows, "calls") for name, rows in frame.groupby(names)}


def _by_rank(capture: Capture, rows: pd.DataFrame, column: str) -> pd.Series:
    """Each rank's sum a step; a rank without a row does none."""
    sums = rows.groupby("rank")[column].sum().astype("float64") / capture.per
    return sums.reindex(capture.tables["breakdown"]["rank"].to_numpy(), fill_value=0.0)


def _flop_shares(capture: Capture) -> list[float] | None:
    """Percent of the compared steps' model FLOPs on each rank."""
    frame = capture.table("mfu")
    own = frame[frame["step"].isin(capture.steps)] if frame is not None else None
    if own is None or own.empty or own["model_flops"].isna().any() or own["covered_pct"].isna().all():
        return None  # what run.json says of the whole job tells no rank's share
    sums = own.groupby("rank")["model_flops"].sum().astype("float64")
    return (100 * sums / sums.sum()).tolist() if sums.sum() else None
