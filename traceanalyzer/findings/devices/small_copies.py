"""The rule about data that is copied to a GPU in many small pieces: each costs its host more than the link."""

import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.streams.copies import Copies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares, once, won_by_one_turn
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.won import Title
from traceanalyzer.meaning.quantities import size_text, time_text
from traceanalyzer.model.tables import rows_where

MANY_COPIES = 50
"""Of a step."""

SMALL_COPIES_PCT = 5.0
"""Of a step, which a host takes to make them."""

_SMALL_BYTES = 1 << 20
"""On average: a larger one takes the link longer than a host."""

_SUMS = ["copies", "size_bytes", "total_ns", "host_ns"]


def small_copies(
    headline: Headline, steps: Steps, copies: Copies, launch_loops: LaunchLoops, episodes: Episodes, places: Places,
    replay: Replay, *, many_copies: int = MANY_COPIES, small_copies_pct: float = SMALL_COPIES_PCT,
) -> list[Finding]:  # fmt: skip
    """A host makes 50 copies a step or more to its GPU, under 1 MiB on average, and takes 5 % of a step for it.

    Not where the job would be no quicker if that host took no time at all. What is read back has rules of its own.
    """
    if not len(headline) or not len(copies):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = _small(copies, steps_of_operators(steps, basis), many_copies)
    if table.empty:
        return []
    rank = int(table["host_a_step_ns"].idxmax())
    shares = host_shares(table["host_a_step_ns"], rank, basis, small_copies_pct)
    if shares is None:
        return []
    own = table.loc[rank]
    most_ns = shares.most_gained_ns(float(own["host_a_step_ns"]), replay)
    if most_ns is None:
        return []
    copying = launch_loops.table[launch_loops.table["of_uploads"].astype(bool)]
    won = won_by_one_turn(copying, replay, shares, float(own["a_step"]) * basis.per, most_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=Title(
                f"Rank {rank}'s host copies {basis.times(own['a_step'] * basis.per)} to its GPU, "
                f"{size_text(own['size_bytes'] / own['copies'])} on average: making these copies takes it "
                f"{time_text(float(own['host_a_step_ns']))} {basis.a_step}, {shares.pct:.0f} % {basis.of_a_step}"
                f"{shares.also(places)}.",
                *once("Copied as one", won, basis),
            ),
            evidence=plain(table.loc[[rank], _SUMS].reset_index()),
            recommendation="Put what belongs together into one tensor on the CPU (in the collate function, pinned) and "
            "copy that: its parts are views on the GPU, which cost nothing.",
            caveat="A profiler slows the host.",
            gain_ns=won.gain_ns,
            gain_is_bound=won.is_bound,
            unprofiled_gain_ns=won.unprofiled_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="copies",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _small(copies: Copies, per: pd.Series, least: int) -> pd.DataFrame:
    """By rank that makes many small ones: their sums, `a_step` of them, and `host_a_step_ns`."""
    to_device = rows_where(copies.table, is_any(copies.table["direction"].astype("category"), "HtoD"))
    table = rows_where(to_device, to_device["host_ns"].notna()).groupby("rank")[_SUMS].sum(min_count=1)
    steps = per.reindex(table.index)
    a_step = table["copies"].astype("float64") / steps
    is_small = (table["size_bytes"] < _SMALL_BYTES * table["copies"]).fillna(value=False)
    host_ns = table["host_ns"].astype("float64") / steps
    return table.assign(a_step=a_step, host_a_step_ns=host_ns)[is_small & (a_step >= least)]
