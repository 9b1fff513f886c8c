"""What changes to a job gain: its step before and after, and how sure that is."""

from dataclasses import dataclass

from traceanalyzer.meaning.wholes import whole

BOUND_PCT = 3.0
"""Gains of a model that is further from the recording are bounds."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Of the job's mean complete step, or of the capture when it has none.

    Attributes:
        before_ns: the recorded job's step.
        after_ns: the changed job's.
        error_ns: by how much the replay without a change misses the recording.
        unmatched_ns: mean over ranks of the time in communication calls whose partners are not known, so that waits in
            them do not change.
        unprofiled_ns: the step before and after without what recording takes the hosts, an estimate (`recording`);
            `None` where the capture holds no calls whose cost is known.
        steps: of how many steps it is the mean; `None` of a whole capture.
        lacks_hosts: of some rank the host is not in the graph: it may not launch a shorter step in time.
        delayed_ns: by how much the changed step would be shorter without the start delays that no recorded dependency
            explains.
    """

    before_ns: int
    after_ns: int
    error_ns: int
    unmatched_ns: int = 0
    unprofiled_ns: tuple[int, int] | None = None
    steps: int | None = None
    lacks_hosts: bool = False
    delayed_ns: int = 0

    @property
    def whole(self) -> str:
        """Words for what is shorter."""
        return whole(self.steps)

    @property
    def gain_ns(self) -> int:
        """Before − after; never negative."""
        return max(0, self.before_ns - self.after_ns)

    @property
    def most_gain_ns(self) -> int:
        """The gain where the change takes those delays away, too."""
        return max(self.gain_ns, self.before_ns - self.after_ns + self.delayed_ns)

    @property
    def is_delayed(self) -> bool:
        """They are more than 3 % of the step: what the change gains lies between `gain_ns` and `most_gain_ns`."""
        return self.delayed_ns > BOUND_PCT / 100 * self.before_ns

    @property
    def gain_pct(self) -> float:
        """100 · gain / before; 0 where there is nothing before."""
        return 100 * self.gain_ns / self.before_ns if self.before_ns else 0.0

    @property
    def unprofiled_gain_ns(self) -> int | None:
        """The gain of a step without the profiler; never negative."""
        return None if self.unprofiled_ns is None else max(0, self.unprofiled_ns[0] - self.unprofiled_ns[1])

    @property
    def is_bound(self) -> bool:
        """What is not known is more than 3 % of the step, or a host is not known: the gain is a bound, no forecast."""
        unknown_ns = max(self.error_ns, self.unmatched_ns, self.delayed_ns)
        return self.lacks_hosts or unknown_ns > BOUND_PCT / 100 * self.before_ns

    @property
    def is_lower_bound(self) -> bool:
        """Delays without a reason, or waits in calls whose partners are not known, stay as they were.

        They are more than 3 % of the step.
        """
        return self.is_delayed or self.unmatched_ns > BOUND_PCT / 100 * self.before_ns
