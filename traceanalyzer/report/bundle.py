"""One script made of ES modules: each after those that it imports, with its own names kept to itself.

The modules are as browsers and Node run them. Here each becomes a function that returns what it exports, so that the
page carries one script, whose hash its policy names, and no tool has to be installed. Only what the page's modules use
is known: `import { a, b as c } from "./file.js"`, and `export` before `const` or `function`.
"""

import posixpath
import re
from collections.abc import Callable

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
