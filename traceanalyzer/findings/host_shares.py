"""What part of a step hosts spend in something, and who spends enough of it to be told."""

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host.host_time import likely_idle
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.alike import also_on, with_others
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Basis
from traceanalyzer.findings.won import Won

_IN_LOOPS = 0.8
"""Of all times: what the loops gain with one turn is then what is said."""


class HostShares(Struct, frozen=True):
    """What part of a mean step hosts spend in something, told of the one whose GPU idles longest for it.

    Attributes:
        pct: its share.
        ranks: all that spend as much as is worth a finding.
        every: those of which it is known, and the rest of the job.
    """

    pct: float
    ranks: tuple[int, ...]
    every: tuple[int, ...]

    def also(self, places: Places) -> str:
        """Who else, behind the sentence about that one."""
        return also_on(self.ranks, self.every, places)

    def most_gained_ns(self, spent_ns: float, replay: Replay) -> int | None:
        """The most that the time of that one gains: no more than if these hosts took none; `None` for hardly any.

        So it is where another rank is later.
        """
        return most_gained_ns(spent_ns, gain_of(replay, Change("host", 0.0, frozenset(self.ranks))))

    def named(self, rank: int) -> tuple[int, ...]:
        """Those that the sentence and `also` name; it is of this one."""
        return with_others(rank, self.ranks, self.every)


def host_shares(spent_ns: pd.Series, rank: int, basis: Basis, least_pct: float) -> HostShares | None:
    """Of what each host spends, by rank, in a mean step; `None` where this one's is less than `least_pct` of it."""
    shares = basis.shares_pct(spent_ns)
    if not shares.get(rank, 0.0) >= least_pct:
        return None
    ranks = sorted(int(one) for one in shares.index[shares >= least_pct])
    return HostShares(float(shares[rank]), tuple(ranks), tuple(int(one) for one in shares.index))


def most_gained_ns(spent_ns: float, gain: Gain | None) -> int | None:
    """The most that hosts' time in something gains: no more than if they took none (`gain`); `None` for hardly any."""
    if gain is None:
        return round(spent_ns)
    most_ns = min(spent_ns, gain.gain_ns + gain.error_ns)
    return round(most_ns) if 100 * most_ns >= LEAST_GAIN_PCT * gain.before_ns else None


def won_by_one_turn(loops: pd.DataFrame, replay: Replay, shares: HostShares, times: float, most_ns: int) -> Won:
    """What it gains by the replay if each run of these loops (of `launch_loops`) is one turn, else at most `most_ns`.

    It is done so many `times`, most of them in the loops: fewer are not what is told.
    """
    if loops.empty or loops.groupby("rank")["turns"].sum().max() < _IN_LOOPS * times:
        return Won(most_ns, is_bound=True)
    ranks = frozenset(shares.ranks)
    gain = gain_of(replay, *(Change("loop", 0.0, ranks, name=str(name)) for name in loops["loop"].unique()))
    return Won.of(gain) if gain is not None and gain.gain_ns else Won(most_ns, is_bound=True)


def once(how: str, won: Won, basis: Basis) -> tuple[str | Won, ...]:
    """Parts of a title: what is gained if it is done once, where the replay says it."""
    return () if won.is_bound else (f" {how}, with nothing between, {basis.whole} would be ", won, ".")


def in_a_step(of_hosts: Result) -> pd.DataFrame:
    """The rows with `host_a_step_ns` and `idle_a_step_ns`: of a mean step, or of the whole capture."""
    table = of_hosts.table
    per = table["steps"].astype("Int64").fillna(1).astype("int64")
    host_ns = table["host_ns"].astype("float64") / per
    # What lies outside the window of a whole capture is no part of it.
    idle_ns = likely_idle(host_ns, table).where(table["steps"].notna(), table["idle_ns"])
    idle_ns = idle_ns.astype("Float64").fillna(0.0).astype("float64")
    return table.assign(per=per, host_a_step_ns=host_ns, idle_a_step_ns=idle_ns)
