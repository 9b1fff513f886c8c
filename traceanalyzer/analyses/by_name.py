"""Results by the names of their analyses, and what is said where there is none of a name."""

import difflib

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.registry import ANALYSES
from traceanalyzer.errors import UsageError
from traceanalyzer.given import shown


class NoSuchResultError(UsageError, KeyError):
    """No Result has that name, or it was not asked for."""

    __str__ = Exception.__str__  # a KeyError shows its message as Python writes it


class ByName(dict[str, Result]):
    """Results by the name of their analysis."""

    def __missing__(self, name: object) -> Result:
        """Say what is wrong with a name that none of them has."""
        if isinstance(name, str) and name in ANALYSES:
            raise NoSuchResultError(f"{name} is not among these Results: {', '.join(self)}")
        raise NoSuchResultError(no_such_analysis(name))


def no_such_analysis(name: object) -> str:
    """That there is none, with those of like names; with all where there is none."""
    near = (difflib.get_close_matches(name, ANALYSES, 3) if isinstance(name, str) else []) or list(ANALYSES)
    return f"no analysis is called {shown(name)}; {'did you mean' if len(near) <= 3 else 'there are'} {', '.join(near)}"
