"""Rules about xpu_timer's metrics: hangs, the rank that the others wait for, the slow GPU."""

from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.xpu_timer import against_others, hanging, series
from traceanalyzer.meaning.listed import numbered


def reported_hang(case: Case) -> list[Diagnosis]:
    """Ranks whose kernels did not end within xpu_timer's limit."""
    ranks = hanging(case.xpu_timer) if case.xpu_timer else []
    if not ranks:
        return []
    return [
        Diagnosis(
            severity="high",
            diagnosis=f"xpu_timer reports a hang on {numbered('rank', ranks)}: a product or a collective did not end "
            "within its limit (300 s unless set otherwise).",
            signal="XPU_TIMER_COMMON_HANG is not 0.",
            recommendation="Look at the stacks that it dumped then, and give PyTorch's flight recorder to this command "
            "(--flight-recorder): it names the collective and the rank that never came.",
            caveat="Ranks that wait inside a collective report it too: those that report none, or first, are suspects.",
            ranks=tuple(ranks),
        )
    ]


def waited_for(case: Case, *, most_of_others: float = 0.7) -> list[Diagnosis]:
    """A rank whose collectives are much shorter than the other ranks' of the same series: it comes last."""
    if case.xpu_timer is None:
        return []
    shares = against_others(series(case.xpu_timer, "collective"), "avg_us")
    return [
        Diagnosis(
            severity="medium",
            diagnosis=f"Rank {rank}'s collectives take {100 * share:.0f} % of the other ranks' time: a collective "
            "spins until its last rank arrives, so the others wait for it. Profile this rank next, beside one "
            "of the others.",
            signal="Median over its series of the mean latency, against the other ranks' median of the same series.",
            recommendation=f"Record a trace of rank {rank} and of one other rank, and give both to analyze-traces.",
            caveat="Series are classes of throughput, not of size: a rank that waits long may be in another class.",
            ranks=(int(rank),),
        )
        for rank, share in shares[shares <= most_of_others].sort_values().items()
    ][:5]


def slow_products(case: Case, *, least_of_others: float = 0.9) -> list[Diagnosis]:
    """A rank whose matrix products run slower than the other ranks' of the same series."""
    if case.xpu_timer is None:
        return []
    shares = against_others(series(case.xpu_timer, "product"), "tflops")
    return [
        Diagnosis(
            severity="medium",
            diagnosis=f"Rank {rank}'s matrix products reach {100 * share:.0f} % of the other ranks' speed: its GPU is "
            "slower.",
            signal="Median over its series of TFLOPS, against the other ranks' median of the same series.",
            recommendation="Look at its clocks, power and temperature (nvidia-smi -q -d PERFORMANCE), and at what else "
            "runs on it.",
            caveat="Ranks that compute other shapes (a pipeline's stages) differ by their work, not by their GPU.",
            ranks=(int(rank),),
        )
        for rank, share in shares[shares <= least_of_others].sort_values().items()
    ][:5]
