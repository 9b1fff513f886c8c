"""Episodes that hide each other: who leads, and what is said of them together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_advice import advice
from traceanalyzer.findings.late.late_words import (
    beside_late,
    each_of,
    late,
    peer,
    rate_of,
    waited,
    whole_ns,
    whole_of,
    whose,
)
from traceanalyzer.findings.late.when import Recorded
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.gains import gain_said
from traceanalyzer.meaning.listed import named, numbered
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.sentences import first_upper

Row = Mapping[str, Any]

_MAIN = 0.5
"""Of what all gain together: an episode that gains this much alone is told alone, the others behind it."""

_SEVERAL = 2

_END_OF_FIRST = re.compile(r"(?<!\d\))[:;.] |\.$")
"""Where an advice's first part ends: not within a frame, `train.py(88): log_metrics`."""

_MANY = 3
"""Of so many that are late by the same the latest stands for all: which ranks the others are, and by how much."""

_COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def joint_ns(row: Row) -> int:
    """What mending all of its set gains, without what recording takes the hosts where that is known; 0 of no set."""
    unprofiled, joint = row["joint_unprofiled_gain_ns"], row["joint_gain_ns"]
    return (joint if unprofiled is None else unprofiled) or 0


def set_of(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The episodes of its set in order; itself alone without one."""
    if row["together"] is None:
        return [row]
    return sorted((each for each in rows if each["together"] == row["together"]), key=_place)


def _place(row: Row) -> int:
    return int(row["place_in_set"])


def told(finding: Finding, row: Row, rows: Sequence[Row], recorded: Recorded) -> Finding:
    """The finding of one episode, as one of its set: the first for all of them, the others behind those before them."""
    own = set_of(row, rows)
    if len(own) == 1:
        return finding
    before = own[: _place(row)]
    if before:
        title = f"{first_upper(late(row, recorded))} {waited(row)}. Hidden behind {named([whose(it) for it in before])}"
        costs = f"with that mended, it costs {time_text(row['then_gain_ns'])}{rate_of(row, recorded.steps)}"
        ahead = (rank for it in before for rank in numbers(it["ranks"]))
        return replace(finding, title=f"{title} now; {costs}.", named=tuple(dict.fromkeys((*beside_late(row), *ahead))))
    alone = row["gain_ns"] if row["unprofiled_gain_ns"] is None else row["unprofiled_gain_ns"]
    is_main = alone is not None and alone >= _MAIN * joint_ns(row)
    return finding if is_main else _of_all(finding, own, recorded)


def with_other_causes(finding: Finding, row: Row, rows: Sequence[Row], replay: Replay) -> Finding:
    """The first finding about ranks that are late by several causes, each mended alone, with what all of them gain.

    As it stands where the others add less than half of what they gain alone: these are other steps' or hide each other.
    """
    own = [each for each in rows if each["ranks"] == row["ranks"] and each["together"] is None and each["gain_ns"]]
    if len(own) < _SEVERAL or own[0] is not row or any(each["is_in_turn"] for each in own):
        return finding
    whole = gain_of(replay, Change("rank", PEERS, frozenset(numbers(row["ranks"]))))
    others_ns = sum(each["gain_ns"] for each in own[1:])
    if whole is None or whole.is_bound or whole.gain_ns < row["gain_ns"] + _MAIN * others_ns:
        return finding
    also = named(list(dict.fromkeys(_called_beside(each, row) for each in own[1:])))
    return replace(finding, title=Title(finding.title, f" With {also} mended too it is ", Won.of(whole), "."))


def _called_beside(row: Row, first: Row) -> str:
    """How a further cause is called: of two things in which one rank's host is late in turn, by its steps."""
    is_told_by_steps = row["cause"] == first["cause"] and not row["is_in_every_step"] and numbers(row["numbers"])
    return f"{whose(row)} in {numbered('step', numbers(row['numbers']))}" if is_told_by_steps else whose(row)


def _of_all(finding: Finding, rows: Sequence[Row], recorded: Recorded) -> Finding:
    """Nobody alone gains much: one finding about all of them, who is latest first."""
    lead = rows[0]
    rows = sorted(rows, key=lambda row: -row["cost_ns"])
    count = _COUNTS.get(len(rows), str(len(rows)))
    alike = _alike(rows)
    parts = [_late(part, recorded) for part in alike]
    bound = bool(lead["gain_is_bound"])
    joint = Won(lead["joint_gain_ns"], bound, lead["joint_unprofiled_gain_ns"], lead["step_ns"])
    alone = max(row["gain_ns"] or 0 for row in rows)
    by_one = gain_said(time_text(alone), is_bound=True) if alone else "no shorter"
    steps = [None if row["is_in_every_step"] else numbers(row["numbers"]) or None for row in rows]
    return replace(
        finding,
        severity=severity(100 * joint_ns(lead) / whole_ns(lead)),
        title=Title(
            f"{first_upper('; '.join(parts))}: the {count} hide each other. Mended together, "
            f"{whole_of(lead, recorded.steps)} is ",
            joint,
            f", {by_one} by one alone.",
        ),
        recommendation=_advice(alike),
        gain_ns=lead["joint_gain_ns"],
        unprofiled_gain_ns=lead["joint_unprofiled_gain_ns"],
        ranks=_ranks(rows),
        named=tuple(dict.fromkeys(rank for row in rows for rank in peer(row))),
        steps=None if None in steps else tuple(sorted({step for own in steps for step in own or ()})),
        cause=" and ".join(dict.fromkeys(row["cause"] for row in rows)),
    )


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows, latest first; those together that are late by the same, where they are many."""
    by_what: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_what.setdefault((row["cause"], row["name"], row["same_work_ratio"] is None), []).append(row)
    alike = (part for own in by_what.values() for part in ([own] if len(own) >= _MANY else [[row] for row in own]))
    return sorted(alike, key=lambda part: -part[0]["cost_ns"])


def _late(alike: Sequence[Row], recorded: Recorded) -> str:
    """When, who and by what; of several the latest, and who else."""
    first, *others = alike
    said = late(first, recorded).rstrip(":;")
    if not others:
        return said
    more = sorted(row["excess_ns"] for row in others)
    steps = " in steps of their own," if any(row["numbers"] != first["numbers"] for row in others) else ""
    each = each_of(first)
    return f"{said}; likewise {numbered('rank', _ranks(others))},{steps} by {time_span(more[0], more[-1])}{each}"


def _ranks(rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(sorted({rank for row in rows for rank in numbers(row["ranks"])}))


def _advice(alike: Sequence[Sequence[Row]]) -> str:
    """What to do about each in one sentence, which is what stands on top of a page; then what that leaves out."""
    advised = dict.fromkeys(advice(_as_one(part)) for part in alike)
    parts = [_END_OF_FIRST.split(text, maxsplit=1) for text in advised]
    first, *others = (head for head, *_ in parts)
    short = "; and ".join([first, *(head[0].lower() + head[1:] for head in others)])
    rest = dict.fromkeys(first_upper(more.strip()) for _, *left in parts for more in left if more.strip())
    return " ".join([f"{short}: one alone gains less than half of it.", *rest])


def _as_one(alike: Sequence[Row]) -> Row:
    """Those that are late by the same as one episode of all their ranks: what is to be done about them is the same."""
    first, *others = alike
    return {**first, "ranks": ",".join(map(str, _ranks(alike))), "place": None} if others else first
