"""How far the gain of mending a lateness is known: its range without the profiler, or why it is a bound."""

from collections.abc import Mapping
from typing import Any

from traceanalyzer.analyses.replay.gain import BOUND_PCT
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.replay.recording import TYPICAL
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.replay.what_ifs import MOST_RANKS
from traceanalyzer.analyses.replay.written import read_change
from traceanalyzer.findings.unprofiled import otherwise
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.wholes import step_or_capture

_SAME = 0.02
"""A gain that the changes alone give to within this part is the one that is said."""


def how_far(row: Mapping[str, Any], replay: Replay) -> str:
    """A sentence about an episode's gain; empty where it is a forecast that recording changes little."""
    gain_ns, engine = row["gain_ns"], replay.engine
    if gain_ns is None:
        return ""
    if row["gain_is_bound"]:
        return _why_bound(engine, replay.why_not)
    if engine is None or not otherwise(gain_ns, row["unprofiled_gain_ns"], row["step_ns"]):
        return ""
    return _range(engine, row)


def _why_bound(engine: Engine | None, why_not: str) -> str:
    if engine is None:
        return f"It is not replayed: {why_not}." if why_not else ""
    least_ns = BOUND_PCT / 100 * engine.before_ns
    why = []
    if engine.error_ns > least_ns:
        of = step_or_capture(engine.windows.steps)
        why.append(f"{time_text(engine.error_ns)} of {of} are not explained by the graph")
    if engine.unmatched_ns > least_ns:
        why.append(f"of {time_text(engine.unmatched_ns)} of communication a rank the partners are not known")
    return f"It is a bound because {', and '.join(why)}." if why else ""


def _range(engine: Engine, row: Mapping[str, Any]) -> str:
    """The least and the most gain by what recording may take the hosts."""
    if not row["what_if"] or len(engine.job.nodes) > MOST_RANKS:
        return "Its range without the profiler is told by `analyze-traces what-if`."
    changes = [read_change(text) for text in row["what_if"].split("; ")]
    gains = {cost: max(0, before - after) for cost, (before, after) in engine.unprofiled_ns(changes).items()}
    if not gains or abs(gains[TYPICAL] - row["unprofiled_gain_ns"]) > _SAME * engine.before_ns:
        return ""
    between = time_span(min(gains.values()), max(gains.values()))
    return f"Without the profiler the gain is {between}, by what recording may take the hosts."
