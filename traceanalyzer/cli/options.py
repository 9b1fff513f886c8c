"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def input_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the traces are, and what of them is looked at."""
    for decorate in reversed(_INPUT):
        function = decorate(function)
    return function


def talk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How much is printed."""
    for decorate in reversed(_TALK):
        function = decorate(function)
    return function


def part_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What of the traces is looked at, where the traces themselves are arguments."""
    for decorate in reversed(_PART):
        function = decorate(function)
    return function


def gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Conditions under which the exit code is 1."""
    return click.option(
        "--fail-on", "gates", multiple=True, metavar="GATE",
        help="Exit with 1 when this holds, such as 'idle_pct > 10 @ any rank'; repeatable (grammar: docs/diff.md).",
    )(function)  # fmt: skip


_PART: tuple[Decorator, ...] = (
    click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,2-3."),
    click.option(
        "--step-range", metavar="NAME",
        help="Name or pattern of the ranges that mark steps (default: ProfilerStep#*, else a guess).",
    ),
    click.option(
        "--kind", "kinds", multiple=True, metavar="KIND=REGEX",
        help="Kernels that match are compute, comm or copy, such as comm=my_all_reduce; repeatable.",
    ),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one a core)."),
)  # fmt: skip

_INPUT: tuple[Decorator, ...] = (
    click.option(
        "--trace-dir", type=click.Path(path_type=Path), metavar="FOLDER",
        help="Folder that holds the traces of the run (searched below it too).",
    ),
    click.option(
        "--trace-file", "trace_files", type=click.Path(path_type=Path), multiple=True, metavar="FILE",
        help="One trace of the run, instead of a folder; repeat for each rank.",
    ),
    click.option(
        "--select", type=click.Choice(["latest", "all"]), default="latest", show_default=True,
        help="Which of several runs in the folder; all writes run_<n>_<timestamp>/ for each.",
    ),
    click.option(
        "--steps", default="all", show_default=True, metavar="WHICH",
        help="Part of the capture to look at: all, last (complete) step, a number, or FIRST:LAST.",
    ),
    *_PART,
)  # fmt: skip

_TALK: tuple[Decorator, ...] = (
    click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
    click.option("--verbose", "-v", is_flag=True, help="Print what is done, and tracebacks of bugs."),
)
"""Options that decide how much is printed."""
