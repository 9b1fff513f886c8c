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
    """Ranks of one host name the same GPU of those that they see, which are at least as many as its ranks.

    Or a report of Nsight Systems says which GPU each process has, and two have one.
    """
    table = ranks.to_frame()
    table = rows_where(table, table["device"].notna() & table["devices_seen"].notna())
    is_told = table["format"] == "nsys"
    told = [_of_report(int(device), own) for (_, device), own in _of_several(table[is_told], "files")]
    table = table[~is_told & table["host"].notna()]
    if ranks.is_one_process:
        return told
    by_host = table.groupby("host")["rank"].transform("size")
    table = table[(table["devices_seen"] >= by_host) & (table["devices_seen"] > 1)]
    return told + [_of_host(str(host), int(device), own) for (host, device), own in _of_several(table, "host")]


def _of_several(table: pd.DataFrame, place: str) -> list[tuple[tuple[str, int], pd.DataFrame]]:
    """GPUs of several ranks, by where they are and their numbers there."""
    return [(key, own) for key, own in table.groupby([place, "device"], observed=True) if len(own) > 1]


def _of_host(host: str, device: int, own: pd.DataFrame) -> Finding:
    return _shared(
        own,
        f"each of them names number {device} of the {own['devices_seen'].min()} that it sees on {host}. They take "
        "turns at it, so that",
        "",
        "It holds unless CUDA_VISIBLE_DEVICES names other GPUs for each of them.",
    )


def _of_report(device: int, own: pd.DataFrame) -> Finding:
    return _shared(
        own,
        f"they are processes of one report, which says that each has number {device} of its machine. They share it, so "
        "that what is idle of one may be busy for another, and",
        " Where they are to share it, as by MPS or in turn, look at them together.",
        None,
    )


def _shared(own: pd.DataFrame, how: str, besides: str, caveat: str | None) -> Finding:
    ranks = tuple(int(rank) for rank in own["rank"])
    return Finding(
        severity="high",
        title=f"Ranks {listed(ranks)} run on one GPU: {how} the times of their kernels hold each other's.",
        evidence=plain(own[["rank", "host", "device", "devices_seen"]]),
        recommendation="Give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK) before anything is put on a "
        f"GPU, and one process for each GPU.{besides}",
        caveat=caveat,
        named=ranks,
        is_about_capture=True,
        table="ranks",
    )
