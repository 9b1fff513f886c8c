"""The charts of one page: their data, who draws them, and the policy that lets plotly's script run where it must."""

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from traceanalyzer.report import assets

OWN = {"scatter", "icicle"}
"""Kinds of plotly's traces that the page's own script draws: a page with no others does without plotly's 2 MB."""


class Charts:
    """Collects the charts that templates ask for while a page is rendered; `made` are those that plotly draws."""

    def __init__(self, plotlyjs: str) -> None:
        self.plotlyjs = plotlyjs
        self.made: list[str] = []

    def add(self, name: str, figure: Mapping[str, Any] | None, label: str) -> Markup:
        """The place of a chart, which its script fills when it scrolls into view; nothing without a figure."""
        if figure is None:
            return Markup()
        is_own = {trace.get("type") for trace in figure["data"]} <= OWN
        if not is_own:
            self.made.append(name)
        return Markup(
            '<div class="chart" id="chart-{name}" role="img" aria-label="{label}"{own}>'
            '<p class="quiet">Loading chart…</p></div>'
            '<script type="application/json" class="figure" data-for="chart-{name}">{data}</script>'
        ).format(name=name, label=label, own=Markup(' data-own="yes"') if is_own else "", data=_embedded_small(figure))

    @property
    def allowed(self) -> tuple[str, ...]:
        """What the page's policy allows beside the page's own script: plotly's, where a chart needs it."""
        if not self.made:
            return ()
        return (f"'{assets.sha256(assets.plotly_text())}'",) if self.plotlyjs == "inline" else ("'self'",)

    @property
    def place(self) -> str | None:
        """Where the page finds plotly's script; `None` where it carries it or has no chart."""
        return f"../{assets.plotly_name()}" if self.made and self.plotlyjs == "directory" else None

    @property
    def packed_script(self) -> Markup | None:
        """Plotly's script for the page; `None` where there is no chart or it lies beside the page."""
        if not self.made or self.plotlyjs != "inline":
            return None
        return Markup(assets.plotly_packed())  # noqa: S704 - our own digits: no `<` among them ends the element


def _embedded_small(figure: Mapping[str, Any]) -> Markup:
    """A figure as JSON; a long one deflated, in base64, as a text."""
    text = embedded(figure)
    return text if len(text) < _PACKED_ABOVE else embedded(assets.packed(text.encode("ascii")))


_PACKED_ABOVE = 10_000
"""Characters: names repeat for every rank, so that a figure of many becomes a sixth."""


def embedded(data: Any) -> Markup:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
