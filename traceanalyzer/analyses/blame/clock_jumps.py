"""Steps in which a rank's clock is set: longer or shorter than everybody else's by what no wait explains."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.step_parts import OWN_PARTS
from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.model.tables import rows_where

_LEAST_NS = 1_000_000


def clock_jumps_ns(table: pd.DataFrame, calls: pd.DataFrame) -> pd.Series:
    """By how much the rank's clock is set in each row of `StepNeeds`; absent where it is not.

    The step differs from the others' by ten times as much as any other step of the rank does, and as any other rank's;
    and no other rank waits a tenth of that more than in its other steps. Nor does the rank need half of that more than
    the others in its other steps, too: such a rank ends its first step late, and all later ones as much. Nor do its
    calls (of `CallWaits`) end with their partners' after that step as they did before: a rank that feeds the others is
    done with its first step long before they are. Told from three steps and ranks on, of ranks that communicate:
    others may take as long as they like.
    """
    jumps = pd.Series(pd.NA, index=table.index, dtype="Int64")
    held = table[table["rank"].isin(calls["rank"]) & table["step"].notna() & ~table["is_partial"].astype(bool)]
    lengths = (held["end_ns"] - held["begin_ns"]).astype("float64")
    wide = by_step_and_rank(held.assign(length=lengths), "length")
    if wide.shape[0] < 3 or wide.shape[1] < 3 or wide.isna().any(axis=None):
        return jumps
    off = wide.sub(wide.median(axis=1), axis=0)
    waits = by_step_and_rank(held, "exposed_wait_ns")
    beyond = waits - waits.median()
    needs = by_step_and_rank(held.assign(own=held[list(OWN_PARTS)].sum(axis=1)), "own")
    size = off.abs().to_numpy()
    by_size = np.sort(size, axis=0)
    # Of almost every rank this is all to be asked: what follows looks at all ranks.
    is_alone = (by_size[-1] >= _LEAST_NS) & (by_size[-1] >= 10 * by_size[-2])
    for rank in off.columns[is_alone]:
        step = off[rank].abs().idxmax()
        jump = float(off[rank][step])
        # Ranks that really are at a step for longer are waited for, in the next one at last; own waits hold the jump.
        waited = beyond.drop(columns=rank).max(axis=1)
        most = max(waited[step], waited.shift(-1).fillna(0)[step])
        most = max(most, off.loc[step].drop(rank).abs().max())  # clocks of several are not set at once
        more = (needs[rank] - needs.drop(columns=rank).median(axis=1)).astype("float64")
        always = float(more.drop(step).median())
        is_usual = always * jump > 0 and abs(always) >= abs(jump) / 2
        is_told = most < abs(jump) / 10 and step != wide.index[-1] and not is_usual
        if is_told and not _ends_with_others(calls, int(rank), int(step), abs(jump)):
            jumps[held.index[(held["rank"] == rank) & (held["step"] == step)]] = round(jump)
    return jumps


def _ends_with_others(calls: pd.DataFrame, rank: int, step: int, jump_ns: float) -> bool:
    """Whether the rank's calls end as long after their partners' after a step as before it, to half of a jump.

    Before the capture's first step there are none: its first call stands for them. Those whose partners are not found
    before a step, and are from it on, do not.
    """
    held = rows_where(calls, calls["instance"].notna())
    own = rows_where(held, held["rank"] == rank).set_index("instance").sort_values("end_ns")
    others = rows_where(held, (held["rank"] != rank) & held["instance"].isin(own.index))
    after_ns = own["end_ns"].astype("float64") - others.groupby("instance")["end_ns"].median().astype("float64")
    apart, steps = after_ns.reindex(own.index).to_numpy(), own["step"].astype("float64").to_numpy()
    known = ~np.isnan(apart)
    before, later = apart[known & (steps < step)], apart[known & (steps > step)]
    if not (rows_where(calls, calls["rank"] == rank)["step"] < step).any():
        before = apart[known & (steps == step)][:1]
    return bool(len(before) and len(later) and abs(np.median(later) - np.median(before)) < jump_ns / 2)
