"""Parts of a page that fail: each becomes a note in its place, and the page is made without it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import jinja2
from markupsafe import Markup

from traceanalyzer.failures import Failure

T = TypeVar("T")


class Guard:
    """Makes the parts of one page; with `is_strict` what fails is raised, else kept as a failure, once a part."""

    def __init__(self, environment: jinja2.Environment, *, is_strict: bool) -> None:
        self.environment = environment
        self.is_strict = is_strict
        self.found: dict[str, Failure] = {}
        self.ahead: dict[tuple[str, str], Markup] = {}
        """Parts that are drawn already, by name and template."""

    def made(self, name: str, make: Callable[[], T], instead: Any) -> T:
        """What `make` gives, or `instead` when it fails."""
        try:
            return make()
        except Exception as error:
            if self.is_strict:
                raise
            self.found.setdefault(name, Failure.of(name, f"The page’s part “{name}”", error))
            return cast("T", instead)

    def drawn(self, context: Mapping[str, Any], name: str, template: str, **more: Any) -> Markup:
        """A template of the page with the macros that all of them use; a sentence where it fails."""
        if (name, template) in self.ahead:
            return self.ahead[name, template]

        def make() -> Markup:
            text = self.environment.get_template("page/part.html").render({**context, **more}, part_template=template)
            return Markup(text)  # noqa: S704 - the template escapes

        note = Markup('<p class="quiet">{} could not be drawn: a bug of traceanalyzer.</p>').format(name)
        return self.made(name, make, note)
