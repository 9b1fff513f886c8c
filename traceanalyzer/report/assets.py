"""The files that a page is made of: templates, style and scripts, put together."""

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from isal import isal_zlib
from markupsafe import Markup

from traceanalyzer import __version__
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import LOOKS, by_key
from traceanalyzer.report import words
from traceanalyzer.report.contents import LAYOUT


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the hash by which the page's policy allows it."""

    text: Markup
    hash: str


@cache
def templates() -> Path:
    """The folder of templates: inside an installed package, else beside it in the source tree."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


@cache
def read(name: str) -> str:
    """A file of the templates' folder."""
    return (templates() / name).read_text(encoding="utf-8")


@cache
def style(*more: str) -> str:
    """A page's style: the vocabulary's colours and patterns, what all pages have, and these files."""
    return environment().get_template("styles/looks.css").render() + "".join(
        read(f"styles/{name}") for name in ("report.css", *more)
    )


@cache
def script(entry: str) -> Script:
    """What runs on a page: a module of the templates' scripts, and all that it imports, as one."""
    text = bundled(entry, lambda path: read(f"scripts/{path}"))
    return Script(Markup(text), sha256(text))  # noqa: S704 - our own files


@cache
def environment() -> jinja2.Environment:
    """What renders the templates: escaping, strict about names, with the filters that all pages use."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"looks": LOOKS, "layout": LAYOUT}
    made.filters |= {
        "quantity": columns.text,
        "digits": columns.digits,
        "per_cent": columns.per_cent,
        "short_name": short_name,
        "unbroken": words.unbroken,
        "known": columns.is_known,
    }
    return made


def render(
    template: str,
    context: Mapping[str, Any],
    *,
    entry: str,
    styles: tuple[str, ...] = (),
) -> str:
    """A whole page: what `base.html` needs beside the template's own words.

    Args:
        template: the page's file in `page/`; it extends `base.html`.
        context: what the template sees, besides version, moment and how many rows of a table stand in the page.
        entry: the module of the scripts that runs on it.
        styles: files of style beside what all pages have.
    """
    own = script(entry)
    shell = {
        "policy": f"default-src 'none'; script-src '{own.hash}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'",
        "script": own,
        "style": Markup(style(*styles)),  # noqa: S704 - our own files
        "version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "vocabulary": Markup(json.dumps(by_key(), ensure_ascii=False)),  # noqa: S704 - our own words
    }
    return environment().get_template(f"page/{template}").render({**shell, **context})


def render_markdown(template: str, context: Mapping[str, Any]) -> str:
    """A text in which nothing is escaped but what the template does itself."""
    return environment().overlay(autoescape=False).get_template(f"page/{template}").render(context)


def packed(content: bytes) -> str:
    """Deflated and in base64, as the page's scripts unpack it."""
    # An eighth of the time that zlib's usual level takes, for a twentieth more bytes.
    return base64.b64encode(isal_zlib.compress(content, 3)).decode("ascii")


def sha256(text: str) -> str:
    """The hash of an inline script as a Content-Security-Policy lists it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


_IMPORT = re.compile(r'^import(?:\s*\{(?P<names>[^}]*)\}\s*from)?\s*"(?P<path>\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function\*?) (?P<name>\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)


def bundled(entry: str, read: Callable[[str], str]) -> str:
    """The script of a module and of all that it imports; `read` gives a module's text by its path."""
    made: dict[str, str] = {}

    def add(path: str) -> str:
        """Put a module after those that it imports; returns what holds its exports, a name that none of them has."""
        variable = "$" + re.sub(r"\W", "_", path.removesuffix(".js"))
        if path not in made:
            made[path] = ""  # a module that imports itself through others would find nothing there

            def taken(found: re.Match[str]) -> str:
                names = re.sub(r"\s+", " ", found["names"] or "").replace(" as ", ": ")
                own = add(posixpath.normpath(posixpath.join(posixpath.dirname(path), found["path"])))
                return f"const {{{names}}} = {own};\n" if names else ""

            code = _IMPORT.sub(taken, read(path))
            exports = ", ".join(found["name"] for found in _EXPORT.finditer(code))
            code = _COMMENT.sub("", _EXPORT.sub("", code)).strip("\n")
            del made[path]
            made[path] = f"const {variable} = (() => {{\n{code}\nreturn {{ {exports} }};\n}})();\n"
        return variable

    add(entry)
    return "".join(['(() => {\n"use strict";\n', *made.values(), "})();\n"])
