"""Why ranks compute longer: their GPUs are of another model than the others'."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import is_said, of_lead
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.number_lists import numbers


def other_gpus(episodes: Episodes, ranks: Ranks) -> list[Finding]:
    """Ranks that compute longer than their peers have GPUs of one model, and all other ranks of another."""
    table = ranks.to_frame()
    models = table.set_index("rank")["device_name"]
    found = []
    for row in episodes.rows():
        late = numbers(row["ranks"])
        own, others = models[models.index.isin(late)], models[~models.index.isin(late)]
        if row["cause"] != "compute" or not is_said(row) or others.empty or models.isna().any():
            continue
        if own.nunique() > 1 or others.nunique() > 1 or own.iloc[0] == others.iloc[0]:
            continue
        who = f"Rank {late[0]}'s GPU is" if len(late) == 1 else f"The GPUs of ranks {listed(late)} are"
        whose = "the other is" if len(others) == 1 else "all others are"
        found.append(
            Finding(
                severity="medium",
                title=f"{who} of another model ({own.iloc[0]}): {whose} {others.iloc[0]}.",
                evidence=plain(table[["rank", "device_name"]]),
                recommendation="Run all ranks on GPUs of one model, or give those on slower ones less work.",
                gain_ns=row["gain_ns"],
                table="ranks",
                tells_why=True,
                part_of=of_lead(episodes, row),
            )
        )
    return found
