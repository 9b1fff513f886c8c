"""What the doctor knows and says: `knowledge.toml`, and the texts of a rule's facts by its templates."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
import pandas as pd

from traceanalyzer.doctor.case import Diagnosis, counted, operation_words
from traceanalyzer.meaning.columns import size_text, time_text
from traceanalyzer.meaning.vocabulary import Severity, first_upper, numbered
from traceanalyzer.model.schema import printable


class Known(msgspec.Struct, frozen=True):
    """One kind of message: how severe it is, its pattern, and its texts; `settings` of NCCL change it."""

    severity: Severity
    pattern: str
    headline: str
    why: str
    fix: str
    settings: tuple[str, ...] = ()


class Knowledge(msgspec.Struct, frozen=True):
    """What `knowledge.toml` holds: its comments say what each part is."""

    lines: dict[str, dict[str, str]]
    stems: tuple[str, ...]
    messages: tuple[Known, ...]
    ib_status: dict[str, str]
    xid: dict[str, str]
    settings: dict[str, str]
    rules: dict[str, dict[str, str]]


KNOWLEDGE = msgspec.toml.decode(files("traceanalyzer.doctor").joinpath("knowledge.toml").read_bytes(), type=Knowledge)


def said(rule: str, facts: Mapping[str, Any]) -> Diagnosis:
    """What a rule's facts mean, in the words that `knowledge.toml` has for the rule.

    Texts are printable: logs and dumps hold what programs wrote into them.
    """
    texts = {name: printable(_template(text).render(facts).strip()) for name, text in KNOWLEDGE.rules[rule].items()}
    known: dict[str, Any] = {name: text for name, text in texts.items() if text}
    return Diagnosis(rule=rule, ranks=tuple(facts.get("ranks", ())), **known)


@cache
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 - plain texts, which pages escape
    made.filters |= {
        "ranks": lambda ranks: numbered("rank", ranks),
        "gpus": lambda numbers: numbered("GPU", numbers),
        "start": first_upper,
        "counted": lambda names: counted(Counter(names)),
        "call": _call,
        "since": _since,
        "time": time_text,
        "size": size_text,
        "some": _some,
    }
    return made


def _call(row: Any) -> str:
    return f"{operation_words(row.operation)} number {row.seq}"


def _since(row: Any) -> str:
    """` since 2026-01-02 03:04:05 UTC` of a recorder's call, or nothing where its time is not known."""
    if pd.isna(row.created_ns):
        return ""
    return f" since {datetime.fromtimestamp(row.created_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S UTC}"


def _some(names: Collection[str], most: int = 8) -> str:
    """The first names, and whether there are more."""
    return ", ".join(list(names)[:most]) + (" and more" if len(names) > most else "")
