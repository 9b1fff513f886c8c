"""Templates as Python modules: made when a wheel is built, used where the jinja2 that made them is installed.

Those of a source tree are compiled when they are first used, and kept as Python keeps what it compiles.
"""

import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any
from zlib import crc32

import jinja2
from jinja2.bccache import Bucket

SYNTAX: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
"""What decides into which code a template is compiled."""

_FILTERS = ("quantity", "digits", "per_cent", "short_name", "unbroken", "known")
"""Names of the filters that templates use beside jinja2's: code that calls them needs no more."""

_FOLDER = "compiled"
_MADE_BY = "jinja2_version"
"""A file beside the modules: what one version generates, another one need not understand."""


def compile_all(templates: Path, target: Path) -> None:
    """Write a module for each template into `target`; the build of a wheel calls this.

    Raises:
        jinja2.TemplateSyntaxError: a template is none.
    """
    made = jinja2.Environment(loader=jinja2.FileSystemLoader(templates), **SYNTAX)  # noqa: S701 - in SYNTAX
    made.filters |= dict.fromkeys(_FILTERS, _of_later)
    made.compile_templates(target, extensions=["html"], zip=None, ignore_errors=False)
    (target / _MADE_BY).write_text(jinja2.__version__, encoding="utf-8")


def _of_later(*_: object) -> str:
    """No filter works while templates are compiled, so that jinja2 leaves even those of constants to the page."""
    raise NotImplementedError


def loader(templates: Path) -> jinja2.BaseLoader:
    """The modules of an installed package; of a source tree, or with another jinja2, the templates themselves."""
    compiled = templates / _FOLDER
    made_by = compiled / _MADE_BY
    if made_by.is_file() and made_by.read_text(encoding="utf-8") == jinja2.__version__:
        return jinja2.ModuleLoader(compiled)
    return jinja2.FileSystemLoader(templates)


class _Kept(jinja2.FileSystemBytecodeCache):
    """Templates that were compiled, each until its text changes."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep one; a folder that cannot be written keeps none."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


def kept() -> jinja2.BytecodeCache | None:
    """Where templates are kept once they are compiled: among this package's own bytecode, if Python writes any."""
    folder = Path(cache_from_source(__file__)).parent
    if sys.dont_write_bytecode or not folder.is_dir():
        return None
    return _Kept(str(folder), f"template-{jinja2.__version__}-{crc32(repr(SYNTAX).encode()):x}-%s")
