"""Sections of a page drawn before the page itself, some of them in forks of this process."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from markupsafe import Markup

from traceanalyzer.forks import all_aside
from traceanalyzer.report.page.charts import Charts
from traceanalyzer.report.page.guard import Guard
from traceanalyzer.report.page.sections import Section

_MOST = 4
"""Shares that the sections are divided into: each takes some hundredths of a second, and a fork one of them."""

Drawn = tuple[dict[tuple[str, str], Markup], list[str]]
"""Parts of the page, and the charts in them that plotly draws."""


def draw_ahead(guard: Guard, charts: Charts, context: Mapping[str, Any], processes: int) -> None:
    """Draw the page's sections, each process its share, and give them to the guard.

    A section that fails is left out: it is drawn where it stands on the page, and the guard notes what fails there.
    """
    sections: Sequence[Section] = context["sections"]
    shares = min(processes, _MOST)
    others = [partial(_drawn, guard, charts, context, sections[place::shares]) for place in range(1, shares)]
    begun = all_aside(others, processes=processes)
    guard.ahead |= _drawn(guard, charts, context, sections[::shares])[0]
    for wait in begun:
        parts, made = wait()
        guard.ahead |= parts
        charts.made += [name for name in made if name not in charts.made]


def _drawn(guard: Guard, charts: Charts, context: Mapping[str, Any], sections: Sequence[Section]) -> Drawn:
    strict = Guard(guard.environment, is_strict=True)
    parts = {}
    for section in sections:
        with suppress(Exception):
            more = {"section": section, "result": context["results"][section.name]}
            parts[section.name, section.template] = strict.drawn(context, section.name, section.template, **more)
    return parts, charts.made
