"""Every kind of finding: the modules of this package that define a function of their own name.

That function takes the run and the Results that it names, and yields what it detects; its name is the kind's id. The
module's docstring is its section of the cookbook, and `PLACE` that section's group and number in it; findings that are
otherwise equal follow the same order.
"""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from traceanalyzer.findings.finding import Finding

Kind = Callable[..., Iterable[Finding]]

GROUPS = ("Input and CPU", "Uneven ranks", "Communication", "Compute", "Memory and copies", "The capture")
"""Of the cookbook, in its order."""


@cache
def every_kind() -> tuple[Kind, ...]:
    """All of them, in the cookbook's order."""
    here = str(Path(__file__).parent)
    modules = {one.name: import_module(f"{__package__}.{one.name}") for one in iter_modules([here])}
    kinds = [name for name, module in modules.items() if hasattr(module, name)]
    kinds.sort(key=lambda name: (GROUPS.index(modules[name].PLACE[0]), modules[name].PLACE[1], name))
    return tuple(getattr(modules[name], name) for name in kinds)
