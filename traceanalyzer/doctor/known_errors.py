"""Messages of NCCL, CUDA, the driver and the kernel whose meaning is known: `knowledge.toml` has them."""

import re
from typing import TYPE_CHECKING

from traceanalyzer.doctor.words import KNOWLEDGE, Known
from traceanalyzer.meaning.vocabulary import first_upper, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from traceanalyzer.doctor.case import Facts
    from traceanalyzer.doctor.nccl_log import NcclLog, Process

_COMPILED = [re.compile(known.pattern, re.IGNORECASE) for known in KNOWLEDGE.messages]


def known_error(text: str) -> tuple[int, re.Match[str]] | None:
    """Which of the known messages a line is, with what its pattern found; `None` for all others."""
    lowered = text.lower()
    if not any(stem in lowered for stem in KNOWLEDGE.stems):
        return None
    return next(((number, match) for number, one in enumerate(_COMPILED) if (match := one.search(text))), None)


def warnings(log: "NcclLog") -> "Iterator[Facts]":
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
        ranks = log.ranks_of(process for who in rest.values() for process in who)
        first = max(rest, key=lambda text: len(rest[text]))
        yield {"known": None, "first": first, "texts": rest, "count": sum(map(len, rest.values())), "ranks": ranks}


def _known(known: Known, found: "Sequence[tuple[re.Match[str], str, Sequence[Process]]]", log: "NcclLog") -> "Facts":
    values = {name: list(dict.fromkeys(value.strip() for match, _, _ in found if (value := match[name])))
              for name in found[0][0].re.groupindex}  # fmt: skip
    codes = values.get("status", [])
    values["status"] = [f"{KNOWLEDGE.ib_status.get(code, 'status')} ({code})" for code in codes]
    values["xid"] = [f"{code} ({KNOWLEDGE.xid.get(code, 'see the catalog')})" for code in values.get("xid", [])]
    texts = {name: " and ".join(own[:3]) for name, own in values.items()}
    interfaces = sorted(set(log.facts["interface"].values()))
    settings = ", ".join(f"{name}={value}" for name in known.settings if (value := log.set_to(name)) is not None)
    texts["settings"] = f"through {' or '.join(interfaces)} " * bool(interfaces) + f"({settings})" * bool(settings)
    who = [process for _, _, own in found for process in own]
    ranks = {number for host, number in who if not host and number >= 0} | set(log.ranks_of(who))
    texts["who"] = first_upper(numbered("rank", ranks)) if ranks else "A rank"
    headline = " ".join(known.headline.format(**texts).split()).replace(" :", ":").strip(": ")
    return {
        "known": known,
        "is_flushed": bool(codes) and set(codes) <= {"5"},
        "headline": headline,
        "why": known.why.format(**texts),
        "place": [f"{name} {texts[name]}" for name in ("peer", "hca", "gid")
                  if texts.get(name) and texts[name] not in headline],
        "count": len(who),
        "texts": {text: own for _, text, own in found},
        "ranks": sorted(ranks),
    }  # fmt: skip
