"""Why ranks compute longer: their GPUs are of another model or size than the others', or ranks share one."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.tables import rows_where


def other_gpus(episodes: Episodes, ranks: Ranks) -> list[Finding]:
    """Ranks that compute longer than their peers have GPUs of one model or size, and all other ranks of another."""
    table = ranks.to_frame()
    found: list[Finding] = []
    for column, words in (("device_name", _MODEL), ("multiprocessors", _SIZE)):
        found = found or _unlike(episodes, table, column, words)
    return found


_MODEL = "of another model ({own})", "{others}"
_SIZE = "smaller ({own} multiprocessors: a slice of one, or another model)", "of {others}"


def _unlike(episodes: Episodes, table: pd.DataFrame, column: str, words: tuple[str, str]) -> list[Finding]:
    models = table.set_index("rank")[column]
    found = []
    for row in said(episodes):
        late = numbers(row["ranks"])
        own, others = models[models.index.isin(late)], models[~models.index.isin(late)]
        if row["cause"] != "compute" or others.empty or models.isna().any():
            continue
        if {*own} & {*others} or len({*own}) > 1 or len({*others}) > 1:
            continue
        if column == "multiprocessors" and own.iloc[0] > others.iloc[0]:
            continue
        one, other = words[0].format(own=own.iloc[0]), words[1].format(others=others.iloc[0])
        who = f"Rank {late[0]}'s GPU is" if len(late) == 1 else f"The GPUs of ranks {listed(late)} are"
        whose = "the other is" if len(others) == 1 else "all others are"
        found.append(
            Finding(
                severity="medium",
                title=f"{who} {one}: {whose} {other}.",
                evidence=plain(table[["rank", column]]),
                recommendation="Run all ranks on GPUs of one model, or give those on slower ones less work.",
                gain_ns=row["gain_ns"],
                named=late,
                table="ranks",
                tells_why=True,
                part_of=of_lead(episodes, row),
            )
        )
    return found


def shared_gpu(ranks: Ranks) -> list[Finding]:
    """Ranks of one host name the same GPU of those that they see, which are at least as many as its ranks."""
    table = ranks.to_frame()
    table = rows_where(table, table["host"].notna() & table["device"].notna() & table["devices_seen"].notna())
    if ranks.is_one_process or table.empty:
        return []
    by_host = table.groupby("host")["rank"].transform("size")
    table = table[(table["devices_seen"] >= by_host) & (table["devices_seen"] > 1)]
    return [
        _shared(str(host), int(device), own)
        for (host, device), own in table.groupby(["host", "device"])
        if len(own) > 1
    ]


def _shared(host: str, device: int, own: pd.DataFrame) -> Finding:
    ranks = tuple(int(rank) for rank in own["rank"])
    who = f"Ranks {listed(ranks)}"
    return Finding(
        severity="high",
        title=f"{who} run on one GPU: each of them names number {device} of the {own['devices_seen'].min()} that it "
        f"sees on {host}. They take turns at it, so that the times of their kernels hold each other's.",
        evidence=plain(own[["rank", "host", "device", "devices_seen"]]),
        recommendation="Give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK) before anything is put on a "
        "GPU, and one process for each GPU.",
        caveat="It holds unless CUDA_VISIBLE_DEVICES names other GPUs for each of them.",
        named=ranks,
        is_about_capture=True,
        table="ranks",
    )
