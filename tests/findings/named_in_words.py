"""The ranks in a finding's words, read from them, beside its data."""

import re

_PIECE = r"\d+(?:(?: to |–)\d+)?"
_MORE = rf"(?:(?:, | and )(?!\d+ more\b){_PIECE})*"
_NAMED = re.compile(
    rf"\brank (?P<one>\d+)\b|\branks \(?(?P<listed>{_PIECE}{_MORE})(?:,? … (?P<last>\d+))?(?: and (?P<more>\d+) more)?\b(?!,\d)",
    re.IGNORECASE,
)


def in_words(title):
    """The ranks that the title names one by one, and of how many more it only says how many there are."""
    found, more = set(), 0
    for match in _NAMED.finditer(title):
        pieces = re.findall(r"(\d+)(?:(?: to |–)(\d+))?", match["listed"] or match["one"])
        ranks = [rank for first, last in pieces for rank in range(int(first), int(last or first) + 1)]
        if match["last"]:
            ranks = range(ranks[0], int(match["last"]) + 1, ranks[1] - ranks[0])
        found |= {*ranks}
        more += int(match["more"] or 0)
    return found, more


def unlike_words(findings):
    """What is wrong with each finding, or sign of one, whose words name other ranks than its data."""
    wrong = []
    for item in (each for finding in findings for each in (finding, *finding.also)):
        (words, more), held = in_words(f"{item.headline} {item.why}"), {*item.ranks, *item.named}
        if not words <= held or len(held - words) != more:
            wrong.append(f"{item.kind} names {sorted(words)}, and holds {item.ranks} and {item.named}: {item.headline}")
    return wrong
