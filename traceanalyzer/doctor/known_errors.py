"""Messages of NCCL, CUDA, the driver and the kernel whose meaning is known: `knowledge.toml` has them."""

import re
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from traceanalyzer.doctor.case import Diagnosis
from traceanalyzer.meaning.vocabulary import Severity, first_upper, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from traceanalyzer.doctor.nccl_log import NcclLog, Process


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

    stems: tuple[str, ...]
    messages: tuple[Known, ...]
    ib_status: dict[str, str]
    xid: dict[str, str]
    settings: dict[str, str]
    timeouts: dict[str, str]
    rules: dict[str, dict[str, str]]


KNOWLEDGE = msgspec.toml.decode(files("traceanalyzer.doctor").joinpath("knowledge.toml").read_bytes(), type=Knowledge)

_COMPILED = [re.compile(known.pattern, re.IGNORECASE) for known in KNOWLEDGE.messages]


def known_error(text: str) -> tuple[int, re.Match[str]] | None:
    """Which of the known messages a line is, with what its pattern found; `None` for all others."""
    lowered = text.lower()
    if not any(stem in lowered for stem in KNOWLEDGE.stems):
        return None
    return next(((number, match) for number, one in enumerate(_COMPILED) if (match := one.search(text))), None)


def warnings(log: "NcclLog") -> "Iterator[Diagnosis]":
    """What was warned of: each known kind with its meaning, then all the rest together."""
    by_kind: dict[int, list[tuple[re.Match[str], str, Sequence[Process]]]] = {}
    rest = {}
    for text, who in log.warnings.items():
        if found := known_error(text):
            by_kind.setdefault(found[0], []).append((found[1], text, who))
        else:
            rest[text] = who
    yield from (_known(KNOWLEDGE.messages[number], own, log) for number, own in sorted(by_kind.items()))
    if rest:
        first = max(rest, key=lambda text: len(rest[text]))
        yield Diagnosis(
            severity="medium",
            diagnosis=f"NCCL warns: {first[:200]}",
            signal=f"{sum(map(len, rest.values()))} warnings of {len(rest)} kinds: {_shown(rest.items())}.",
            ranks=tuple(log.ranks_of(process for who in rest.values() for process in who)),
        )


def _known(known: Known, found: "Sequence[tuple[re.Match[str], str, Sequence[Process]]]", log: "NcclLog") -> Diagnosis:
    facts = {name: list(dict.fromkeys(value.strip() for match, _, _ in found if (value := match[name])))
             for name in found[0][0].re.groupindex}  # fmt: skip
    codes = facts.get("status", [])
    facts |= {
        "status": [f"{KNOWLEDGE.ib_status.get(code, 'status')} ({code})" for code in codes],
        "xid": [f"{code} ({KNOWLEDGE.xid.get(code, 'see the catalog')})" for code in facts.get("xid", [])],
    }
    texts = {name: " and ".join(values[:3]) for name, values in facts.items()}
    values = [f"{name}={value}" for name in known.settings if (value := log.set_to(name)) is not None]
    interfaces = sorted(set(log.facts["interface"].values()))
    through = f"through {' or '.join(interfaces)} " if interfaces else ""
    who = [process for _, _, own in found for process in own]
    ranks = {number for host, number in who if not host and number >= 0} | set(log.ranks_of(who))
    texts["who"] = first_upper(numbered("rank", ranks)) if ranks else "A rank"
    texts["settings"] = through + (f"({', '.join(values)})" if values else "")
    headline = " ".join(known.headline.format(**texts).split()).replace(" :", ":")
    place = ", ".join(
        f"{name} {texts[name]}" for name in ("peer", "hca", "gid") if texts.get(name) and texts[name] not in headline
    )
    return Diagnosis(
        severity="medium" if codes and set(codes) <= {"5"} else known.severity,
        diagnosis=f"{headline.strip(': ')}.",
        signal=f"{known.why.format(**texts)} {f'At {place}. ' if place else ''}{len(who)} ×: "
        f"{_shown([(text, own) for _, text, own in found])}.",
        recommendation=known.fix.replace("{settings}", ", ".join(known.settings)),
        ranks=tuple(sorted(ranks)),
    )


def _shown(texts: "Iterable[tuple[str, Sequence[Process]]]") -> str:
    return "; ".join(f"'{text[:160]}' ({len(who)} ×)" for text, who in list(texts)[:3])
