"""What a reader must know before trusting the figures, and which figures carry a mark for it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.doubts import by_check
from traceanalyzer.analyses.doubts import reasons as of_checks
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.model import Skipped
from traceanalyzer.report.contents import Report


def sentences(report: Report) -> list[str]:
    """One sentence for each thing; none when the capture is clean."""
    return [*skipped(report.skipped), *of_what_is_here(report)]


MOST_FILES = 8
"""Names that are said, where there is little room, of files skipped for one reason; page and JSON have them all."""


def skipped(items: Iterable[Skipped], most: int | None = None) -> list[str]:
    """What was left out and why, once for each folder and reason; of more files or folders the first `most` by name."""
    alike: dict[str, dict[str, list[str]]] = {}
    for item in items:
        alike.setdefault(item.why, {}).setdefault(item.what.rpartition("/")[0], []).append(item.what)
    said: list[str] = []
    for why, folders in alike.items():
        if most is not None and len(folders) > most:
            whats = [what for each in folders.values() for what in each]
            said.append(f"{len(whats):,} files in {len(folders):,} folders ({_named(whats, most)}): {why}")
        else:
            said += [f"{_listed(folder, whats, most)}: {why}" for folder, whats in folders.items()]
    return said


def _listed(folder: str, whats: list[str], most: int | None) -> str:
    if len(whats) == 1:
        return whats[0]
    named = _named([what.removeprefix(folder).lstrip("/") for what in whats], most)
    return f"{len(whats):,} files in {folder} ({named})" if folder else named


def _named(names: list[str], most: int | None) -> str:
    left = len(names) - (most or len(names))
    return ", ".join([*names[:most], f"{left:,} more"] if left > 0 else names)


def of_what_is_here(report: Report) -> list[str]:
    """The same without what was skipped."""
    ranks = report.results["ranks"].to_frame()
    return [
        *report.notes,
        *_of_some_ranks(ranks.dropna(subset="notes"), len(ranks)),
        *(_checks(report.results["integrity"]) if "integrity" in report.results else []),
    ]


def doubted(results: Results) -> dict[str, str]:
    """Results whose figures the integrity checks make unreliable, by name, and why."""
    return {name: " ".join(sentences) for name, sentences in reasons(results).items()}


def reasons(results: Results) -> dict[str, tuple[str, ...]]:
    """The same, sentence by sentence."""
    return of_checks(results["integrity"].to_frame() if "integrity" in results else None)


def doubt_of(names: Iterable[str], doubts: Mapping[str, Sequence[str]]) -> str | None:
    """Why a figure that comes from these Results is in doubt, each reason once; `None` when it is not."""
    return " ".join(dict.fromkeys(sentence for name in names for sentence in doubts.get(name, ()))) or None


def with_caveats(findings: Iterable[Finding], doubts: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """The findings; those that rest on doubted Results say so in their caveat."""
    made = []
    for finding in findings:
        doubt = doubt_of(finding.sources, doubts)
        caveat = " ".join(text for text in (finding.caveat, doubt and f"Read with care: {doubt}") if text)
        made.append(replace(finding, caveat=caveat or None))
    return tuple(made)


def _checks(integrity: Integrity) -> list[str]:
    """What the integrity checks found, worst first; what marks nothing stays in its table."""
    return [sentence for sentence, _ in by_check(integrity.to_frame())]


def _of_some_ranks(noted: pd.DataFrame, ranks: int) -> list[str]:
    """Each note of the files once, with the ranks that it is of unless it is of all."""
    made = []
    for note, rows in noted.groupby("notes", sort=False):
        who = numbered("rank", rows["rank"].tolist()).capitalize()
        made.append(str(note) if len(rows) == ranks else f"{who}: {note}")
    return made
