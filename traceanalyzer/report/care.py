"""What a reader must know before trusting the figures: damage, missing ranks, operations of no step."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.report import Report

MANY_PCT = 10.0
"""Operations without a step or launch in this share are worth a sentence."""


def sentences(report: Report) -> list[str]:
    """One sentence for each thing; none when the capture is clean."""
    ranks = report.results["ranks"].to_frame()
    return [
        *(f"{item.what}: {item.why}" for item in report.skipped),
        *report.notes,
        *(
            f"Rank {rank}: {note}"
            for rank, note in zip(ranks["rank"], ranks["notes"], strict=True)
            if not pd.isna(note)
        ),
        *(_checks(report.results["integrity"]) if "integrity" in report.results else _of_ranks(ranks)),
    ]


def doubted(report: Report) -> dict[str, str]:
    """Results whose figures the integrity checks make unreliable, by name, and why."""
    if "integrity" not in report.results:
        return {}
    frame = report.results["integrity"].to_frame()
    found: dict[str, list[str]] = {}
    for sentence, affects in frame.loc[frame["severity"] != "info", ["sentence", "affects"]].itertuples(index=False):
        for name in str(affects).split(", "):
            found.setdefault(name, []).append(str(sentence))
    return {name: " ".join(dict.fromkeys(sentences)) for name, sentences in found.items() if name}


def _checks(integrity: Result) -> list[str]:
    """What the integrity checks found, worst first; what is merely information stays in its table."""
    frame = integrity.to_frame()
    frame = frame[frame["severity"] != "info"]
    return [str(sentence) for sentence in frame["sentence"].drop_duplicates()]


def _of_ranks(ranks: pd.DataFrame) -> list[str]:
    return [*_damage(ranks), *_missing(ranks), *_without_launch(ranks)]


def _damage(ranks: pd.DataFrame) -> list[str]:
    cut = [str(rank) for rank in ranks["rank"][ranks["truncated"].fillna(value=False).astype(bool)]]
    skipped = ranks[ranks["events_skipped"].fillna(0) > 0]
    return [
        *([f"The files of ranks {', '.join(cut)} are cut off: their last part is missing."] if cut else []),
        *(
            f"Rank {rank}: {count:,} events could not be read."
            for rank, count in zip(skipped["rank"], skipped["events_skipped"], strict=True)
        ),
    ]


def _missing(ranks: pd.DataFrame) -> list[str]:
    sizes = ranks["world_size"].dropna()
    if sizes.empty or len(ranks) >= sizes.max():
        return []
    return [f"{len(ranks)} of the job's {int(sizes.max())} ranks are here; figures over ranks are of these."]


def _without_launch(ranks: pd.DataFrame) -> list[str]:
    share = 100.0 * ranks["operations_without_launch"] / ranks["operations"]
    many = share[share >= MANY_PCT]
    if many.empty:
        return []
    return [
        (
            f"Up to {many.max():.0f} % of a rank's GPU operations were queued before the capture began: they belong to "
            "no step, and the capture does not say what launched them."
        )
    ]
