"""One cause, one finding: what other rules say of it becomes part of the one that tells the cause."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.severities import SEVERITIES, Severity

_MOST = 0.8

_HALF = 0.5

_RAISED: Severity = "medium"
"""What gains a known amount is made no graver by signs of it: these are of all that its rank does."""


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with those taken in whose `part_of` is what another one is `about`; the order stays.

    Of several about one cause the first leads, and those that are part of that cause too are taken in. A finding
    that is itself part of another takes nothing in: its cause is not the last one, so what points at it stands alone.
    So does what gains over twice as much as the one that would take it in: that is the smaller part of it.
    """
    first = {item.about: item for item in reversed(findings) if item.about}
    outer = {id(item): _outer(item, first) for item in findings}
    inner = {key: lead for key, lead in outer.items() if id(lead) != key and outer[id(lead)] is lead}
    return [
        _with(lead, _signs([item for item in findings if inner.get(id(item)) is lead]))
        for lead in findings
        if id(lead) not in inner
    ]


def _signs(taken_in: Sequence[Finding]) -> tuple[Finding, ...]:
    """What says what to do stands before the others: of many, two are said in the terminal; of the same words one."""
    by_words = {(item.rule, str(item.title)): item for item in reversed(taken_in)}
    once = [item for item in taken_in if by_words[item.rule, str(item.title)] is item]
    return tuple(sorted(once, key=lambda item: not (item.is_to_do_first or item.tells_why)))


def _outer(item: Finding, first: Mapping[str, Finding]) -> Finding:
    lead = first.get(item.part_of or "", item)
    is_known = not (item.gain_is_bound or item.is_of_ideal or lead.gain_is_bound)
    is_more = is_known and (lead.expected_ns or 0) < _HALF * (item.expected_ns or 0)
    return item if is_more else lead


def _with(lead: Finding, also: tuple[Finding, ...]) -> Finding:
    """One card is as grave as its gravest sign; where its gain is known, as those that tell why, and medium by others.

    Of an ideal, what signs say can be mended is to be done first, and that alone where one gains most of it. A sign of
    an ideal that makes half of it leads itself, unless the ideal says in which steps. One that tells why the cause is
    there, and gains most of what mending it does, says what to do.
    """
    concrete = [it for it in also if it.is_to_do_first] if lead.is_of_ideal else []
    leading = concrete if lead.steps is None else []
    main = next((it for it in leading if (it.gain_ns or 0) >= _HALF * (lead.expected_ns or 0) > 0), None)
    first = [it.recommendation for it in concrete if it.recommendation]
    why = next((it for it in also if it.tells_why and (it.gain_ns or 0) >= _MOST * (lead.gain_ns or 0)), lead)
    is_all = main is not None and (main.gain_ns or 0) >= _MOST * (lead.gain_ns or 0)
    advice = " ".join(dict.fromkeys([*first, *([] if is_all else [why.recommendation or ""])])).strip() or None
    own = [it.severity for it in (lead, *also) if it is lead or it.tells_why or lead.gain_is_bound]
    raised = [_RAISED for it in also if SEVERITIES.index(it.severity) <= SEVERITIES.index(_RAISED)]
    grave = min([*own, *raised], key=SEVERITIES.index)
    if main is not None:
        also = (lead, *(it for it in also if it is not main))
        lead = replace(main, about=lead.about, part_of=None)
    return replace(lead, also=also, severity=grave, recommendation=advice)
