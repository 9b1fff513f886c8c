"""What recording itself does to the figures: hosts that stop for every call that is written down."""

from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.recording import RUN_TO_RUN
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.wholes import step_or_capture

_OTHER = 0.2
"""A gain that differs by more than this part of the larger one is another gain without the profiler; so is one that
differs by more than runs of one job do."""

_WORTH_PCT = 1.0
"""Of a step: what less than this differs by is not worth saying."""

HOSTS = "hosts"

_LOADED = 0.5

BINDS_PCT = 10.0
"""Hosts that could shorten the step without the profiler by more than this share of it bind it there, too."""


def otherwise(gain_ns: int, unprofiled_ns: int | None, step_ns: int) -> str:
    """` (an estimated 1.2 ms shorter without the profiler)` where the gain is another one there; else empty.

    What gains nothing there is no shorter: nobody would read "0 ns shorter".
    """
    if unprofiled_ns is None or not is_another(gain_ns, unprofiled_ns, step_ns):
        return ""
    shorter = f"an estimated {time_text(unprofiled_ns)} shorter" if unprofiled_ns else "by estimate no shorter"
    return f" ({shorter} without the profiler)"


def is_another(recorded_ns: float, unprofiled_ns: float, step_ns: float) -> bool:
    """Whether a gain, or a change of either sign, is another one without the profiler."""
    apart = abs(recorded_ns - unprofiled_ns)
    is_other = apart > _OTHER * max(abs(recorded_ns), abs(unprofiled_ns)) and 100 * apart >= _WORTH_PCT * step_ns
    return is_other or apart > RUN_TO_RUN * step_ns


def who_decides(of_hosts: Gain | None, of_data: Gain | None) -> str:
    """The `hosts` decide a step's length; the data loader, where data that is ready gains half of what they could."""
    is_loaded = of_hosts is not None and of_data is not None and of_data.gain_ns > _LOADED * of_hosts.gain_ns
    return "the data loader" if is_loaded else HOSTS


def of_hosts(
    steps_ns: tuple[int, int] | None,
    ideal_ns: int | None,
    *,
    steps: int | None,
    are_waits_open: bool = False,
    who: str = HOSTS,
) -> tuple[str, bool | None]:
    """A sentence on the step without the profiler, and whether hosts bind it, too; `None` where that cannot be told.

    Args:
        steps_ns: the step with the most that recording may take the hosts taken away, and with the least.
        ideal_ns: the step of hosts that take no time.
        steps: how many these are means of; `None` of the whole capture.
        are_waits_open: waits for partners that are not known stay in all of these as they were: they are the most that
            the job needs.
        who: what of hosts binds the step, as `who_decides` has it.
    """
    if steps_ns is None or ideal_ns is None:
        return "", True
    shortest, longest = steps_ns
    what = step_or_capture(steps)
    an_estimate = "at most an estimated" if are_waits_open else "an estimated"
    takes = f"Recording slows hosts: without it {what} would take {an_estimate} {time_span(shortest, longest)}"
    most, least = (100 * (step - ideal_ns) / step if step else 0.0 for step in (longest, shortest))
    if most < BINDS_PCT and not are_waits_open:
        return f"{takes}, and the GPUs would decide its length.", False
    if least >= BINDS_PCT:
        return f"{takes}, and {who} would still decide its length.", True
    return f"{takes}; whether {who} would still decide its length cannot be told from this capture.", None
