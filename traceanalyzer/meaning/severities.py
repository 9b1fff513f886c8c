"""How grave what is said is, of a capture's findings and of the doctor's diagnoses alike."""

from typing import Literal, get_args

Severity = Literal["high", "medium", "low", "info"]
"""`info` is healthy, or harmless."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Gravest first."""

HIGH, MEDIUM, LOW, INFO = SEVERITIES

GRAVE: tuple[Severity, ...] = (HIGH, MEDIUM)
"""What is said first, and marks the figures that it reaches."""
