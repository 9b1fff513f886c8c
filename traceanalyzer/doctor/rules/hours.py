"""Rules about long records: NCCL Inspector's bandwidths and late ranks, RAS' counts."""

from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.inspector import bandwidth, late_ranks
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import size_text, time_text


def often_last(case: Case, *, last_pct: float = 50.0, cost_pct: float = 5.0, fewest_calls: int = 20) -> list[Diagnosis]:
    """A rank that comes last to most collectives of a communicator of more than two, and makes the others wait."""
    if case.inspector is None:
        return []
    late = late_ranks(case.inspector)
    if late.empty:
        return []
    total = case.inspector.calls.groupby("communicator")["duration_ns"].sum()
    members = late.groupby("communicator")["rank"].transform("size")
    share = 100 * late["caused_wait_ns"] * (members - 1) / late["communicator"].map(total)
    found = late[(late["last_pct"] >= last_pct) & (late["calls"] >= fewest_calls) & (share >= cost_pct)]
    return [
        Diagnosis(
            severity="medium",
            diagnosis=f"Rank {rank} of communicator {communicator} comes last to {pct:.0f} % of its collectives: the "
            f"others "
            f"wait {time_text(caused / calls)} for it in each. Profile this rank next, beside one of the others.",
            signal=f"{last:,} of {calls:,} collectives; the rank with the shortest duration is the one that came last.",
            recommendation=f"Record a trace of rank {rank} and of one other rank, and give both to analyze-traces.",
            caveat="Durations include queueing on the GPU where the Inspector's timing source is the host.",
            ranks=(int(rank),),
        )
        for communicator, rank, calls, last, caused, pct in zip(
            found["communicator"], found["rank"], found["calls"], found["last"], found["caused_wait_ns"],
            found["last_pct"], strict=True,
        )
    ]  # fmt: skip


def bandwidth_drops(
    case: Case, *, drop_pct: float = 50.0, fewest_calls: int = 50, least_bytes: int = 1 << 20
) -> list[Diagnosis]:
    """Collectives of one size whose slowest tenth reaches less than half of the median bandwidth."""
    if case.inspector is None:
        return []
    table = bandwidth(case.inspector)
    big = table[(table["calls"] >= fewest_calls) & (table["size_bytes"] >= least_bytes)]
    found = big[big["low_gb_per_s"] < (100 - drop_pct) / 100 * big["median_gb_per_s"]]
    return [
        Diagnosis(
            severity="low",
            diagnosis=f"{collective} of {size_text(size)} in communicator {communicator} reaches {median:.1f} GB/s "
            f"as a rule (median), but at most {low:.1f} GB/s in a tenth of its calls.",
            signal=f"{calls:,} calls; bus bandwidth of the fastest rank of each, so that waiting does not count.",
            recommendation="See whether the slow ones fall together in time (congestion, a neighbour's job) or "
            "follow a rank.",
            caveat="All ranks late alike, as after an evaluation, does not show as a drop; overlapping compute does.",
        )
        for communicator, collective, size, calls, median, low in zip(
            found["communicator"], found["collective"], found["size_bytes"], found["calls"], found["median_gb_per_s"],
            found["low_gb_per_s"], strict=True,
        )
    ][:5]  # fmt: skip


def ras_troubles(case: Case) -> list[Diagnosis]:
    """What RAS reports as incomplete or mismatching."""
    made = []
    for trouble in case.ras.troubles if case.ras else ():
        where = f"communicator {trouble.communicator}" if trouble.communicator else "the job"
        counts = sorted(trouble.counts, key=lambda pair: pair[1])
        if len(counts) > 1:
            who = f" ({numbered('rank', trouble.ranks)} are the ones it lists)" if trouble.ranks else ""
            operation = f"{trouble.operation} " if trouble.operation else ""
            told = (
                f"Ranks of {where} are not in step: {counts[0][0]} have launched {operation}operation {counts[0][1]} "
                f"at most, "
                f"{counts[-1][0]} operation {counts[-1][1]}{who}."
            )
        elif trouble.ranks:
            told = f"RAS lacks {numbered('rank', trouble.ranks)} of {where} ({trouble.status.lower()})."
        else:
            told = f"RAS reports {where} as {trouble.status.lower()}."
        made.append(
            Diagnosis(
                severity="high" if "INCOMPLETE" in trouble.status or "ERROR" in trouble.status else "medium",
                diagnosis=told,
                signal="; ".join(trouble.details[:6]) or trouble.status,
                recommendation="Query again after a minute: counts that differ and do not move are a hang, counts "
                "that move "
                "are ranks ahead of others. Then dump the ranks that lag (py-spy dump, flight recorder).",
                caveat="RAS counts launches, not ends, and lists the smaller set of ranks, which need not be the "
                "late one.",
                ranks=trouble.ranks,
            )
        )
    return made
