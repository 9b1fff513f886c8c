"""What is known of the things that pages hand to their templates: their types, and what attributes those have."""

import collections.abc
import dataclasses
import inspect
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result
from traceanalyzer.analyses import Results as AllResults


@dataclass(frozen=True)
class Of:
    """Anything of this class."""

    cls: type


@dataclass(frozen=True)
class Value:
    """This very thing: a function, a module."""

    it: Any


@dataclass(frozen=True)
class Many:
    """Several of these."""

    each: tuple


@dataclass(frozen=True)
class Each:
    """One of each of these, in order."""

    parts: tuple


@dataclass(frozen=True)
class Record:
    """A dictionary with these keys."""

    fields: tuple


@dataclass(frozen=True)
class Pairs:
    """A dictionary whose keys are data."""

    keys: tuple
    values: tuple


@dataclass(frozen=True)
class Table:
    """A Result's table, with its columns."""

    columns: tuple


@dataclass(frozen=True)
class Gives:
    """A method that gives this."""

    what: tuple


@dataclass(frozen=True)
class Macros:
    """All macros of a template; where they are imported so, they see what the page has."""

    template: str
    sees_all: bool


@dataclass(frozen=True)
class Macro:
    """One of them."""

    template: str
    name: str
    sees_all: bool = True


class Results:
    """All Results by name: at run time they are a plain dictionary."""


ANY = (Value(None),)
"""Not known, so not followed. Alternatives are tuples."""

LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator,
         collections.abc.Collection, collections.abc.Set)  # fmt: skip
DICTS = (dict, collections.abc.Mapping, types.MappingProxyType)


def of_hint(hint):
    """The alternatives of an annotation."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if hint == AllResults:
        return (Of(Results),)
    if isinstance(hint, typing.TypeVar | str) or hint in (Any, None, inspect.Parameter.empty):
        return ANY
    if origin in (typing.Union, types.UnionType):
        return union(*(of_hint(one) for one in given if one is not type(None)))
    if origin is typing.Literal:
        return (Of(type(given[0])),)
    if origin is tuple and given[-1] is not ...:
        return (Each(tuple(of_hint(one) for one in given)),)
    if origin in LISTS:
        return (Many(of_hint(given[0])),)
    if origin in DICTS:
        return (Pairs(of_hint(given[0]), of_hint(given[1])),)
    if origin is collections.abc.Callable:
        return ANY
    hint = origin or hint
    return (Of(hint),) if isinstance(hint, type) and hint not in (object, *LISTS, *DICTS) else ANY


def of_value(value):
    """The alternatives of what a page hands over, as far down as it consists of plain lists and dictionaries."""
    if value is None:
        return ()
    if isinstance(value, DICTS) and value and all(isinstance(one, Result) for one in value.values()):
        return (Of(Results),)
    if isinstance(value, DICTS):
        if all(isinstance(key, str) and key.isidentifier() for key in value):
            return (Record(tuple((key, of_value(one)) for key, one in value.items())),)
        return (Pairs(ANY, union(*map(of_value, value.values()))),)
    if isinstance(value, list | tuple) or type(value).__name__ == "dict_items":
        if isinstance(value, tuple) and len({type(one) for one in value}) > 1:
            return (Each(tuple(map(of_value, value))),)
        return (Many(union(*map(of_value, value))),)
    if callable(value) or isinstance(value, types.ModuleType):
        return (Value(value),)
    return (Of(type(value)),)


def union(*alternatives):
    """All of them once; records become one that has every key."""
    found = tuple(dict.fromkeys(one for each in alternatives for one in each))
    records = [one for one in found if isinstance(one, Record)]
    if len(records) > 1:
        keys = dict.fromkeys(key for one in records for key, _ in one.fields)
        merged = tuple((key, union(*(dict(one.fields).get(key, ()) for one in records))) for key in keys)
        found = (*(one for one in found if one not in records), Record(merged))
    many = [one for one in found if isinstance(one, Many)]
    if len(many) > 1:
        found = (*(one for one in found if one not in many), Many(union(*(one.each for one in many))))
    return found


def attribute(one, name):
    """The alternatives of `one.name`; `None` where there is no such thing."""
    match one:
        case Value(it):
            return ANY if it is None else of_value(getattr(it, name)) if hasattr(it, name) else None
        case Record(fields):
            own = dict(fields)
            return own[name] if name in own else _of_pairs((Of(str),), union(*own.values()), name)
        case Pairs(keys, values):
            return _of_pairs(keys, values, name) or ANY
        case Many():
            return _plain(list, name)
        case Each():
            return _plain(tuple, name)
        case Table(columns):
            return ANY if name in columns else _plain(pd.DataFrame, name)
    return ANY if one.cls in (pd.DataFrame, pd.Series) else _of_class(one.cls, name)


def _of_pairs(keys, values, name):
    """The methods of a dictionary."""
    given = {"items": (Many((Each((keys, values)),)),), "keys": (Many(keys),), "values": (Many(values),), "get": values}
    return (Gives(given[name]),) if name in given else _plain(dict, name)


def _plain(cls, name):
    return ANY if hasattr(cls, name) else None


def _of_class(cls, name):
    if issubclass(cls, Results):
        return (Of(ANALYSES[name].result),) if name in ANALYSES else _plain(dict, name)
    if issubclass(cls, Result) and cls is not Result and name in ("table", "to_frame"):
        table = (Table(tuple(cls.columns)),)
        return table if name == "table" else (Gives(table),)
    held = inspect.getattr_static(cls, name, None)
    if isinstance(held, property):
        return of_hint(typing.get_type_hints(held.fget).get("return"))
    hints = _hints(cls)
    if name in hints:
        return of_hint(hints[name])
    if isinstance(held, types.FunctionType):
        return (Value(held),)
    return ANY if held is not None else None


@cache
def _hints(cls):
    try:
        return typing.get_type_hints(cls)
    except NameError:  # names that only the type checker sees
        return {field.name: Any for field in dataclasses.fields(cls)}
