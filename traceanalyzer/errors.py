"""What a user can cause: every error that is shown as one line, never as a traceback."""


class TraceAnalyzerError(Exception):
    """Something that the user can fix; the message names the file, what is wrong and what to do."""


class InputError(TraceAnalyzerError):
    """The input is missing, unreadable or holds nothing that can be analysed."""


class UsageError(TraceAnalyzerError):
    """An option's value makes no sense, or does not fit this input."""


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line that is not too long; its type where it says nothing."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__


def needs_extra(what: str, extra: str) -> UsageError:
    """An optional package is not installed; it says how to get it, as long as only a clone can be installed."""
    return UsageError(f"{what}: pip install '.[{extra}]' in the clone of traceanalyzer")


class NotATraceError(InputError):
    """A file is not a trace that any reader knows; callers list it as skipped and go on."""
