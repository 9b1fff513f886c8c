"""`--threshold NAME=VALUE`: limits of analyses and of rules, by parameter name."""

import math
from collections.abc import Iterable
from typing import Any

import click

from traceanalyzer.errors import UsageError

threshold_option = click.option(
    "--threshold", "limits", multiple=True, metavar="NAME=VALUE",
    help="Set a limit of a rule (docs/findings.md) or an analysis, such as silent_pct=5; repeatable.",
)  # fmt: skip


def read_thresholds(texts: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Thresholds of analyses, and those of rules.

    Raises:
        UsageError: one has no such name, or no number.
    """
    if not (given := tuple(texts)):
        return {}, {}
    from traceanalyzer.functions import thresholds_apart, thresholds_with_numbers

    known, read = thresholds_with_numbers(), {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        read[name] = _number(text, value, known.get(name, float))
    return thresholds_apart(read, known)


def _number(text: str, value: str, kind: type) -> float:
    """A whole number where that is one."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (kind is int and not number.is_integer()):
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"--threshold {text}: write NAME=VALUE, the value {what}")
    return int(number) if kind is int else number
