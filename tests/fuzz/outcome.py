"""What became of one damaged input."""

import faulthandler
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from traceanalyzer.errors import TraceAnalyzerError

RIGHT, PARTIAL, REFUSED = "right", "partial and said", "refused"
TRACEBACK, HANG, WRONG, ENDED = "traceback", "hang", "wrong and not said", "process ended"

FINE = (RIGHT, PARTIAL, REFUSED)
BUGS = (TRACEBACK, HANG, WRONG, ENDED)

MOST_SECONDS = 10
MOST_MESSAGE = 1500
"""Characters of an error: longer ones are another program's, passed on."""


class WrongError(Exception):
    """A figure that is not what the input says, and nothing that warns of it."""


class _HangError(BaseException):
    """No `Exception`: nothing that is careful about errors may catch it."""


@dataclass(frozen=True)
class Outcome:
    """What became of it, where the program stood if that is a bug, and the whole story."""

    what: str
    place: str = ""
    story: str = ""

    @property
    def is_fine(self) -> bool:
        return self.what in FINE


def judged(look: Callable[[], bool], seconds: int = MOST_SECONDS) -> Outcome:
    """Run `look`, which says whether something was said to be lost, and name what came of it."""
    try:
        with _limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            is_partial = look()
    except TraceAnalyzerError as error:
        text = str(error)
        if not text.strip() or len(text) > MOST_MESSAGE or "Traceback" in text:
            return Outcome(WRONG, "message", text[:3000])
        return Outcome(REFUSED, story=text)
    except _HangError as error:
        return Outcome(HANG, _place(error), traceback.format_exc())
    except WrongError as error:
        return Outcome(WRONG, str(error).partition(":")[0], str(error))
    except Exception as error:  # noqa: BLE001 - whatever escapes is what we look for
        return Outcome(TRACEBACK, _place(error), traceback.format_exc())
    return Outcome(PARTIAL if is_partial else RIGHT)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _HangError

    # The processor's time, not the clock's: a busy machine is no hang.
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    # The C code of a library sees no signal: it is killed a while later, with where it stood.
    faulthandler.dump_traceback_later(12 * seconds, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)


def _place(error: BaseException) -> str:
    """Where in our code it happened: what bugs are told apart by."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/traceanalyzer/" in frame.filename]
    at = (ours or frames)[-1]
    return f"{type(error).__name__} in {at.filename.rpartition('/traceanalyzer/')[2]}:{at.name}"
