"""Of the ranks that others wait for: who costs a notable part of a step, who is acquitted, and what is left."""

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.meaning.listed import numbered

LEAST_COST_PCT = 2.0
"""Of a step; stragglers that cost less are in their table alone."""


def costly(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> pd.DataFrame:
    """Stragglers for which a rank waits at least so long; without those that are acquitted."""
    frame = stragglers.to_frame()
    return frame[_costs(frame, least_pct) & ~_is_acquitted(frame)]


def acquitted(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> str:
    """A sentence about ranks that others wait for and whose hosts need what every host needs; empty without any."""
    frame = stragglers.to_frame()
    ranks = frame.loc[_costs(frame, least_pct) & _is_acquitted(frame), "rank"]
    if ranks.empty:
        return ""
    one = len(ranks) == 1
    who = numbered("rank", ranks)
    whose = "whose host needs" if one else "whose hosts need"
    return f"Others wait for {who}, {whose} no longer for a step than hosts do where nothing is wrong: nobody's fault."


def too_cheap(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> str:
    """A sentence about the rows that cost less than `costly` asks for; empty without any."""
    rest = int((~_costs(stragglers.to_frame(), least_pct)).sum())
    if not rest:
        return ""
    who = (
        "Where waits can be told from transfers, no rank makes another wait"
        if rest == len(stragglers)
        else f"The {rest} other ranks make nobody wait"
    )
    return f"{who} for {least_pct:.0f} % of a step; tables/stragglers.csv has all."


def _costs(frame: pd.DataFrame, least_pct: float) -> pd.Series:
    return is_true(frame["cost_pct"] >= least_pct)


def _is_acquitted(frame: pd.DataFrame) -> pd.Series:
    return is_true(frame["is_acquitted"])
