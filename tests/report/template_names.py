"""Which names the templates use that are nowhere: their expressions, followed through the types of what pages hand them.

Both ways of every condition are followed, so that no capture has to take them. What has no type (pandas' values, plain
`Any`) is not followed.
"""

import functools
import inspect
import typing
from functools import cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.runtime import LoopContext

from tests.report.template_types import (
    ANY,
    Each,
    Gives,
    Macro,
    Macros,
    Many,
    Of,
    Pairs,
    Record,
    Results,
    Table,
    Value,
    attribute,
    of_hint,
    of_value,
    union,
)
from traceanalyzer.analyses import ANALYSES, Result
from traceanalyzer.report import assets


class Names:
    """Follows one page's templates; `wrong` takes up what is nowhere."""

    def __init__(self, environment: jinja2.Environment) -> None:
        self.environment = environment
        self.wrong: dict[str, None] = {}
        self.seen: set = set()
        self.called: set[tuple[str, str]] = set()
        self.followed: set[str] = set()
        self.at = ""
        self.everywhere = {
            key: of_value(value) for key, value in environment.globals.items() if key not in DEFAULT_NAMESPACE
        }

    def page(self, name, names):
        """Follow a page: where it extends another, that one too, with the blocks that it does not have itself."""
        if (above := tree(name).find(nodes.Extends)) is None:
            self.template(name, names)
            return
        self.body(name, [one for one in tree(name).body if not isinstance(one, nodes.Extends | nodes.Block)], names)
        base = above.template.value
        blocks = {block.name: (at, block) for at in (base, name) for block in tree(at).find_all(nodes.Block)}
        for at, block in blocks.values():
            self.body(at, block.body, dict(names))
        self.body(base, [one for one in tree(base).body if not isinstance(one, nodes.Block)], dict(names))

    def template(self, name, names):
        """Follow a whole template with these names around it."""
        self.body(name, tree(name).body, dict(names))

    def body(self, template, body, names):
        self.followed.add(template)
        before, self.at = self.at, template
        for node in body:
            getattr(self, f"on_{type(node).__name__.lower()}", self.on_other)(node, names)
        self.at = before

    def say(self, node, text):
        self.wrong[f"{self.at}:{node.lineno}: {text}"] = None

    def on_other(self, node, names):
        for child in node.iter_child_nodes():
            if isinstance(child, nodes.Expr):
                self.type(child, names)
            else:
                self.body(self.at, [child], names)

    def on_for(self, node, names):
        inner = {**names, "loop": (Of(LoopContext),)}
        self.bind(node.target, union(*map(self.element, self.type(node.iter, names))), inner)
        if node.test:
            self.type(node.test, inner)
        self.body(self.at, node.body, inner)
        self.body(self.at, node.else_, dict(names))

    def on_if(self, node, names):
        if not self.is_never(node.test, names):
            self.type(node.test, names)
            self.body(self.at, node.body, names)
        for other in node.elif_:
            self.on_if(other, names)
        self.body(self.at, node.else_, names)

    def on_assign(self, node, names):
        self.bind(node.target, self.type(node.node, names), names)

    def on_macro(self, node, names):
        names[node.name] = (Macro(self.at, node.name),)

    def on_import(self, node, names):
        names[node.target] = (Macros(node.template.value, node.with_context),)

    def on_fromimport(self, node, names):
        for name in node.names:
            names[name] = self.macro_of(node, Macros(node.template.value, node.with_context), name)

    def on_include(self, node, names):
        if isinstance(node.template, nodes.Const):
            self.template(node.template.value, names)

    def macro_of(self, node, macros, name):
        if name in macros_of(macros.template):
            return (Macro(macros.template, name, macros.sees_all),)
        self.say(node, f"{macros.template} has no macro {name}")
        return ANY

    def bind(self, target, kinds, names):
        if isinstance(target, nodes.Name):
            names[target.name] = kinds
            return
        for place, item in enumerate(target.items):
            parts = [one.parts[place] if isinstance(one, Each) and place < len(one.parts) else ANY for one in kinds]
            self.bind(item, union(*parts), names)

    def element(self, one):
        match one:
            case Many(each):
                return each
            case Each(parts):
                return union(*parts)
            case Pairs(keys, _):
                return keys
        return ANY

    def is_never(self, test, names):
        if isinstance(test, nodes.And):
            return self.is_never(test.left, names) or self.is_never(test.right, names)
        return (
            isinstance(test, nodes.Test)
            and test.name == "defined"
            and isinstance(test.node, nodes.Name)
            and test.node.name not in names
        )

    def type(self, node, names):
        """The alternatives of an expression."""
        return getattr(self, f"of_{type(node).__name__.lower()}", self.of_other)(node, names)

    def of_other(self, node, names):
        for child in node.iter_child_nodes():
            self.type(child, names)
        return ANY

    def of_name(self, node, names):
        if node.name in names:
            return names[node.name]
        if node.name not in DEFAULT_NAMESPACE and node.name not in self.environment.globals:
            self.say(node, f"no {node.name}")
        return ANY

    def of_const(self, node, names):  # noqa: ARG002 - as of every other expression
        return (Of(type(node.value)),)

    def of_and(self, node, names):
        return ANY if self.is_never(node, names) else self.of_or(node, names)

    def of_or(self, node, names):
        return union(self.type(node.left, names), self.type(node.right, names))

    def of_condexpr(self, node, names):
        if self.is_never(node.test, names):
            return self.type(node.expr2, names) if node.expr2 else ()
        self.type(node.test, names)
        return union(self.type(node.expr1, names), self.type(node.expr2, names) if node.expr2 else ())

    def of_add(self, node, names):
        return self.of_or(node, names)

    def of_list(self, node, names):
        return (Many(union(*(self.type(item, names) for item in node.items))),)

    def of_getattr(self, node, names):
        kinds = self.type(node.node, names)
        return self.attribute_of(node, kinds, node.attr)

    def attribute_of(self, node, kinds, name):
        if kinds and isinstance(kinds[0], Macros):
            return self.macro_of(node, kinds[0], name)
        found = [attribute(one, name) for one in kinds]
        if found and all(one is None for one in found):
            self.say(node, f"no .{name} of {kinds}"[:200])
        return union(*(one for one in found if one)) or ANY

    def of_getitem(self, node, names):
        kinds, given = self.type(node.node, names), self.type(node.arg, names)
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
        made = []
        for one in kinds:
            match one:
                case Table(columns) if isinstance(key, str):
                    if key not in columns:
                        self.say(node, f"no column {key}")
                    made.append(ANY)
                case Table():
                    made.append((one,))
                case Each(parts) if isinstance(key, int):
                    made.append(parts[key])
                case Many(each):
                    made.append((one,) if isinstance(node.arg, nodes.Slice) else each)
                case Pairs(_, values):
                    made.append(values)
                case Record() | Of() if isinstance(key, str):
                    made.append(self.attribute_of(node, (one,), key))
                case Of(cls) if issubclass(cls, Results):
                    made.append((Of(Result),))
                case _:
                    made.append(ANY)
        return union(*made) or (given and ANY)

    def of_call(self, node, names):
        given = [self.type(argument, names) for argument in node.args]
        named = {one.key: self.type(one.value, names) for one in node.kwargs}
        self.columns_of(node, names)
        if isinstance(node.node, nodes.Name) and node.node.name == "drawn":
            return self.drawn(node, names, named)
        return union(*(self.called_of(node, one, given, named, names) for one in self.type(node.node, names))) or ANY

    def called_of(self, node, one, given, named, names):
        match one:
            case Macro():
                self.expand(node, one, given, named, names)
            case Gives(what):
                return what
            case Value(it) if callable(it):
                try:
                    inspect.signature(it).bind_partial(*given, **named)
                except TypeError as error:
                    self.say(node, str(error))
                whole = it.func if isinstance(it, functools.partial) else it
                try:
                    return of_hint(typing.get_type_hints(whole).get("return"))
                except (NameError, TypeError):
                    return ANY
        if isinstance(node.node, nodes.Getattr) and node.node.attr in ("head", "nlargest", "sort_values"):
            return tuple(kind for kind in self.type(node.node.node, names) if isinstance(kind, Table)) or ANY
        return ANY

    def columns_of(self, node, names):
        """A section's lists of columns, and the columns by which its table is sorted."""
        own = next((one.cls for one in names.get("result", ()) if isinstance(one, Of)), None)
        if own is None or not own.columns:
            return
        chosen = [item.value for one in node.args if isinstance(one, nodes.Tuple) for item in one.items]
        if isinstance(node.node, nodes.Getattr) and node.node.attr in ("nlargest", "sort_values"):
            chosen += [one.value for one in node.args if isinstance(one, nodes.Const) and isinstance(one.value, str)]
        for name in chosen:
            if name not in own.columns:
                self.say(node, f"no column {name} of {own.__name__}")

    def drawn(self, node, names, named):
        """A part of the page: with its own template, or a section's with each Result."""
        part = node.args[1]
        around = {**names, **named, "macros": (Macros("page/macros.html", sees_all=True),)}
        if isinstance(part, nodes.Const):
            self.template(part.value, around)
            return ANY
        for path in sorted((assets.templates() / "sections").glob("*.html")):
            result = ANALYSES[path.stem].result if path.stem in ANALYSES else Result
            key = ("section", path.stem)
            if key not in self.seen:
                self.seen.add(key)
                self.template(f"sections/{path.name}", {**around, "result": (Of(result),)})
        return ANY

    def expand(self, node, macro, given, named, names):
        """The macro's own body, with what it is called with."""
        self.called.add((macro.template, macro.name))
        own = macros_of(macro.template)[macro.name]
        arguments = [one.name for one in own.args]
        if len(given) > len(arguments) or set(named) - set(arguments):
            self.say(node, f"{macro.name} does not take these arguments")
        bound = dict(zip(arguments, given, strict=False)) | named
        key = (macro, repr(sorted(bound.items())))
        if key in self.seen:
            return
        self.seen.add(key)
        around = dict(names if macro.sees_all else self.everywhere)
        for one in tree(macro.template).body:
            if isinstance(one, nodes.Macro | nodes.Import | nodes.FromImport):
                self.body(macro.template, [one], around)
        missing = [name for name in arguments[: len(arguments) - len(own.defaults)] if name not in bound]
        if missing:
            self.say(node, f"{macro.name} is not given {', '.join(missing)}")
        defaults = dict(zip(arguments[len(arguments) - len(own.defaults) :], own.defaults, strict=True))
        around |= {name: self.type(value, names) for name, value in defaults.items()} | bound
        self.body(macro.template, own.body, around)

    def of_filter(self, node, names):
        kinds = self.type(node.node, names) if node.node else ANY
        for argument in node.args:
            self.type(argument, names)
        by = [one.value.value for one in node.kwargs if one.key == "attribute"]
        if node.name in ("selectattr", "rejectattr"):
            by = [node.args[0].value]
        each = union(*map(self.element, kinds))
        for name in by:
            found = self.attribute_of(node, each, name)
        if node.name == "map":
            return (Many(found if by else ANY),)
        if node.name in ("selectattr", "rejectattr", "select", "reject", "list", "reverse", "sort"):
            return (Many(each),)
        return each if node.name in ("first", "last") else ANY

    def of_test(self, node, names):
        if node.name != "defined" or not isinstance(node.node, nodes.Name):
            self.type(node.node, names)
        return ANY


def names_of(page: str, contexts: list[dict[str, Any]], **hints: Any) -> Names:
    """A page's templates, followed with what it was rendered with, and types of what was never there."""
    found = Names(assets.environment())
    keys = dict.fromkeys(key for context in contexts for key in context)
    names = {key: union(*(of_value(context[key]) for context in contexts if key in context)) for key in keys}
    names |= found.everywhere | {key: of_hint(hint) for key, hint in hints.items()}
    found.wrong |= {f"{page}: nothing is known of {key}": None for key, kinds in names.items() if not kinds}
    found.page(page, names)
    return found


def macros_of(template):
    return {one.name: one for one in tree(template).find_all(nodes.Macro)}


@cache
def tree(template):
    return assets.environment().parse(assets.read(template))
