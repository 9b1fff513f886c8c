"""Gradients that are exchanged in every micro-step, though only the last exchange before the optimizer counts."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.phases.micro_steps import GRADIENT_COLLECTIVES, MicroSteps
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Basis, severity
from traceanalyzer.findings.communication.without_calls import gain_without
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.quantities import size_text

LEAST_CALLS = 3
"""Of a step: two alike may be of two models that are trained in turn."""

LEAST_BYTES = 64 << 10
"""Smaller reductions are of losses, norms and flags, not of gradients."""


def redundant_exchanges(
    headline: Headline,
    steps: Steps,
    calls: Calls,
    micro_steps: MicroSteps,
    replay: Replay,
    *,
    redundant_calls: int = LEAST_CALLS,
) -> list[Finding]:
    """Every micro-step of every step exchanges the same sequence of gradients: all but the last are redundant.

    The gain is of the job replayed with those transfers gone.
    """
    if not len(headline) or not len(micro_steps) or not len(calls):
        return []
    basis = Basis.of(headline, steps)
    held = basis.within(micro_steps.table)
    counts = held["micro_steps"].dropna().unique()
    if basis.steps is None or len(counts) != 1 or int(counts[0]) < 2:
        return []
    micro = int(counts[0])
    # Several optimizers, one after the other: models that are trained in turn, each with its own gradients.
    if not (held["synchronising_micro_steps"] == micro).all() or (held["optimizer_steps"].fillna(1) > 1).any():
        return []
    own = basis.within(calls.table)
    own = own[own["collective"].isin(GRADIENT_COLLECTIVES) & (own["size_bytes"] >= LEAST_BYTES).fillna(value=False)]
    repeats = [_repeated(rows, micro, redundant_calls) for _, rows in own.groupby(["rank", "step"])]
    if not repeats or any(rows is None for rows in repeats):
        return []
    redundant = pd.concat([rows for rows in repeats if rows is not None])
    one = redundant[redundant["rank"] == redundant["rank"].iloc[0]]
    size = int(one["size_bytes"].sum()) / basis.per
    gain = gain_without(replay.engine, redundant) if replay.engine else None
    return [_finding(micro, len(one) / basis.per, size, gain, str(one["collective"].iloc[0]))]


def _repeated(rows: pd.DataFrame, micro: int, least_calls: int) -> pd.DataFrame | None:
    """All but the last of so many equal sequences of calls; `None` where the step's calls are no such sequence."""
    ordered = rows.sort_values("start_ns")
    each, rest = divmod(len(ordered), micro)
    if rest or each * micro < least_calls:
        return None
    sizes = ordered["size_bytes"].to_numpy(dtype=np.int64).reshape(micro, each)
    names = ordered["collective"].astype("str").to_numpy().reshape(micro, each)
    groups = ordered["group_ranks"].astype("str").to_numpy().reshape(micro, each)
    is_equal = all((table == table[0]).all() for table in (sizes, names, groups))
    return ordered.iloc[: each * (micro - 1)] if is_equal else None


def _finding(micro: int, calls: float, size: float, gain: Gain | None, collective: str) -> Finding:
    moved = size_text(size)
    gains = Title()
    if gain is not None:
        gains = Title(f" Without them, {gain.whole} is ", Won.recorded(gain), ".")
        if gain.gain_pct < LEAST_GAIN_PCT:
            gains = Title(
                " Without their transfers alone a step is no shorter as recorded, as something else binds it: "
                "what launching them takes the hosts comes on top, and is not told apart."
            )
    every, are = ("Both", "is") if micro == 2 else (f"All {micro}", "are")
    each = f"{calls:.0f} {collectives_words(collective)} and {moved} a step on each rank"
    return Finding(
        severity="low" if gain is None else severity(gain.gain_pct),
        title=Title(
            f"{every} micro-steps of a step exchange the same gradients: {micro - 1} of {micro} exchanges {are} "
            f"redundant, {each}.",
            gains,
        ),
        recommendation="Exchange gradients in the last micro-step only: model.no_sync() (DDP), "
        "set_requires_gradient_sync(False) (FSDP2) around the others.",
        caveat="With sharded gradients it costs memory: each rank then holds whole gradients between micro-steps. "
        "Where optimizers are not recorded, two models of one shape that are trained in turn look the same.",
        **gained(gain),
        table="micro_steps",
    )
