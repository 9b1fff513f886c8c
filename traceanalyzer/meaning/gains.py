"""How a gain is said: `3.2 ms`, or `at most 3.2 ms` where it is the most that can be won."""

from traceanalyzer.meaning.quantities import time_text


def gain_range_said(least_ns: int, most_ns: int) -> str:
    """The gain where delays that no recorded dependency explains stay after the change, and where they go."""
    return f"between {time_text(least_ns)} and {time_text(most_ns)}" if least_ns else f"up to {time_text(most_ns)}"


def gain_said(amount: str, *, is_bound: bool) -> str:
    """The amount, which says its unit; nothing else says `at most` of a gain.

    A gain is a bound where it is no replay's but the time that its cause takes; where over 3 % of a step are not
    explained by the replay, or are waits whose partners are not known, or a rank's host is not in the capture; where it
    is the distance from an ideal that nobody reaches; and where the capture's means are not the job's (a warm-up, a
    clock that is set, a rank without a trace or a call, lost operations).
    """
    return f"{'at most ' if is_bound else ''}{amount}"
