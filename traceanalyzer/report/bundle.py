"""One script made of ES modules: each after those that it imports, with its own names kept to itself.

The modules are as browsers and Node run them. Here each becomes a function that returns what it exports, so that the
page carries one script, whose hash its policy names, and no tool has to be installed. Only what the page's modules use
is understood: `import { a, b as c } from "./file.js"`, and `export` before `const` or `function`; anything else is an
error.
"""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass

_IMPORT = re.compile(r'^import(?:\s*\{(?P<names>[^}]*)\}\s*from)?\s*"(?P<path>\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function\*?) (?P<name>\w+))", re.MULTILINE)
_OTHER = re.compile(r"^\s*(?:import|export)\b.*", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)


class BundleError(ValueError):
    """Modules that cannot be put together: the message names the file."""


@dataclass(frozen=True, slots=True)
class _Module:
    path: str
    imports: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Of each imported file: its names there and here."""
    exports: tuple[str, ...]
    code: str


def bundled(entry: str, read: Callable[[str], str]) -> str:
    """The script of a module and of all that it imports.

    Args:
        entry: the path of the first module.
        read: gives a module's text by its path.

    Raises:
        BundleError: a file imports itself through others, or a name that is not exported, or has a statement that is
            not understood.
    """
    modules: dict[str, _Module] = {}
    _add(entry, read, modules, ())
    parts = [_function(module, modules) for module in modules.values()]
    return "".join(['(() => {\n"use strict";\n', *parts, "})();\n"])


def _add(path: str, read: Callable[[str], str], modules: dict[str, _Module], above: tuple[str, ...]) -> None:
    """Put a module after those that it imports."""
    if path in above:
        raise BundleError(f"{' imports '.join([*above[above.index(path) :], path])}: a circle")
    if path in modules:
        return
    module = _module(path, read(path))
    for imported, _ in module.imports:
        _add(imported, read, modules, (*above, path))
    modules[path] = module


def _module(path: str, text: str) -> _Module:
    imports = []
    for found in _IMPORT.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found["path"]))
        named = [part.split() for part in (found["names"] or "").split(",") if part.strip()]
        imports.append((target, tuple((words[0], words[-1]) for words in named)))
    exports = tuple(found["name"] for found in _EXPORT.finditer(text))
    code = _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub("", text))).strip("\n")
    if other := _OTHER.search(code):
        raise BundleError(f"{path}: not understood: {other[0].strip()}")
    return _Module(path, tuple(imports), exports, code)


def _function(module: _Module, modules: dict[str, _Module]) -> str:
    """A module as a function that returns what it exports."""
    lines = []
    for path, names in module.imports:
        for name, _ in names:
            if name not in modules[path].exports:
                raise BundleError(f"{module.path} imports {name}, which {path} does not export")
        taken = ", ".join(theirs if theirs == ours else f"{theirs}: {ours}" for theirs, ours in names)
        lines += [f"const {{ {taken} }} = {_variable(path)};"] if names else []
    lines += [module.code, f"return {{ {', '.join(module.exports)} }};"] if module.exports else [module.code]
    body = "\n".join(lines)
    return f"const {_variable(module.path)} = (() => {{\n{body}\n}})();\n"


def _variable(path: str) -> str:
    """What holds a module's exports: no name of a module begins so."""
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))
