"""Two or three sentences that say where the step time went: the findings' own words, or the breakdown's."""

from collections.abc import Sequence
from itertools import islice

import pandas as pd

from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, MISSING_RANKS
from traceanalyzer.analyses.integrity.unknown_communication import UNKNOWN_KERNELS
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.findings import Finding
from traceanalyzer.findings.capture.spoilt import spoilt_ranks
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import digits, text
from traceanalyzer.meaning.severities import GRAVE
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import host
from traceanalyzer.report.words.parts import Split

NOTABLE_PCT = 10.0
"""A part that takes less of the time is not worth a sentence."""

APART_PCT = 20.0
"""Ranks whose shares differ by more than this are called out."""

PROFILED_HOSTS = "Hosts are slower under a profiler: hold this against the time of a step without one."

MOST_FINDINGS = 2
MOST_SENTENCES = 3


def sentences(report: Report, split: Split | None) -> list[str]:
    """The verdict, most important first; says so when nothing is wrong."""
    if split is None:
        is_host_only = host.is_host_only(report.results)
        none = ["No GPU operation was recorded, so there is nothing to split."]
        return [*host.sentences(report.results), *_said(report.findings)] if is_host_only else none
    shares = _shares(split)
    if shares.empty:
        return ["No recorded GPU operation takes any time, so there is nothing to split."]
    found = _said(report.findings)
    if split.opaque_pct and not found:
        return _of_unknown(split, shares)
    if spoilt_ranks(report.results["headline"], report.results["integrity"]):
        return found  # what the bars show of them is not the job's
    length = [_length(split, shares), *_fused(report)]
    is_of_capture = not split.opaque_pct and all(_is_of_capture_alone(finding) for finding in report.findings)
    if not found or is_of_capture:
        return [*length, *found, *_from_breakdown(report, split, shares)]
    # The picture that the bars show comes first, unless a finding says the same.
    is_said = any(all(f"ank {rank}" in title for rank in _late_and_waiting(shares)) for title in found)
    pair = [] if is_said else _one_waits_while_another_idles(report, split, shares)
    return [*length, *pair, *found, *_of_profiled_hosts(report)]


def _of_unknown(split: Split, shares: pd.DataFrame) -> list[str]:
    """What can be said where CUDA graphs were recorded whole: not that all is well."""
    idle = shares["idle_ns"]
    return [
        _length(split, shares),
        (
            "What those graphs hold is unknown: whether communication is hidden cannot be told. Record them node by "
            "node (nsys profile --cuda-graph-trace=node)."
        ),
        *([_shared("idle", idle)] if idle.mean() >= NOTABLE_PCT else []),
    ]


def _said(findings: Sequence[Finding]) -> list[str]:
    """What the first findings say that are grave or have a grave sign, each with the first two that it has taken in."""
    grave = _grave(findings)
    return [item.title for finding in grave for item in (finding, *finding.also[:2])][:MOST_SENTENCES]


def _grave(findings: Sequence[Finding]) -> list[Finding]:
    every = (one for one in findings if any(it.severity in GRAVE for it in (one, *one.also)))
    return list(islice(every, MOST_FINDINGS))


def _of_profiled_hosts(report: Report) -> list[str]:
    """Where the first finding stands on the time of hosts, and has no estimate of what a profiler adds to it."""
    first = _grave(report.findings)[:1]
    return [PROFILED_HOSTS] if any(one.is_of_hosts and one.unprofiled_gain_ns is None for one in first) else []


def _is_of_capture_alone(finding: Finding) -> bool:
    """It says what cannot be told, and the figures hold nevertheless."""
    return finding.is_about_capture and finding.severity != "high"


def _shares(split: Split) -> pd.DataFrame:
    """Per cent of each rank's window by part, with communication and idle as wholes; no row without any time."""
    parts = split.table.set_index("rank")
    parts = parts[parts["window_ns"] > 0]
    return 100.0 * parts.div(parts["window_ns"], axis=0)


def _length(split: Split, shares: pd.DataFrame) -> str:
    mean_ns = split.table["window_ns"].mean() / split.per
    compute = shares["compute_ns"]
    what = f"A step takes {text(mean_ns, Unit.NS)}" if split.steps else f"The capture spans {text(mean_ns, Unit.NS)}"
    if split.opaque_pct:
        return (
            f"{what}. For {digits(split.opaque_pct)} % of it CUDA graphs run that were recorded as one operation each."
        )
    if len(shares) == 1:
        return f"{what}. The GPU computes for {digits(compute.iloc[0])} % of it."
    spread = (
        f" ({digits(compute.min())} to {digits(compute.max())} % over ranks)"
        if compute.max() - compute.min() >= 1
        else ""
    )
    return f"{what}. GPUs compute for {digits(compute.mean())} % of it{spread}."


def _from_breakdown(report: Report, split: Split, shares: pd.DataFrame) -> list[str]:
    idle, comm, copy = shares["idle_ns"], shares["exposed_comm_ns"], shares["exposed_copy_ns"]
    made = _one_waits_while_another_idles(report, split, shares) if len(shares) > 1 else []
    if not made:
        made = [
            _shared(name, share)
            for name, share in (
                ("idle", idle),
                ("in communication that no compute hides", comm),
                ("in copies that neither compute nor communication hides", copy),
            )
            if share.mean() >= NOTABLE_PCT
        ]
    most = f"no more than {digits((idle + comm + copy).max())} %"
    return (
        made
        or _unknown_kernels(report)
        or _without_others(report, shares, most)
        or [
            f"Nothing stands out: {most} of any rank's time is idle, exposed communication or exposed copies.",
            *_of_the_peak(report),
        ]
    )


def _without_others(report: Report, shares: pd.DataFrame, most: str) -> list[str]:
    """Where ranks of the job are missing: a rank that waits for nobody may be the one that all others wait for."""
    if "integrity" not in report.results:
        return []
    if not report.results["integrity"].to_frame()["check"].isin((MISSING_RANKS, LEFT_OUT)).any():
        return []
    one = len(shares) == 1
    here, it = (f"rank {shares.index[0]}'s", "it") if one else ("any of these ranks'", "them")
    what = "idle, exposed communication or exposed copies"
    return [
        f"By {'itself' if one else 'themselves'} nothing stands out: {most} of {here} time is {what}.",
        f"Whether the job's other ranks wait for {it} cannot be told without their traces.",
    ]


def _fused(report: Report) -> list[str]:
    """The share of kernels that compute and communicate at once: neither figure is without them."""
    frame = report.results["headline"].to_frame() if "headline" in report.results else pd.DataFrame()
    share = frame["fused_pct"].dropna() if "fused_pct" in frame else pd.Series(dtype="float64")
    if not share.any():
        return []
    said = f"{digits(share.mean())} % of the time runs kernels that compute and communicate at once"
    return [f"{said}: they count as compute, and what communication costs inside them cannot be told."]


def _unknown_kernels(report: Report) -> list[str]:
    """Where kernels may communicate that no rule knows, nothing can be called well."""
    if "integrity" not in report.results:
        return []
    table = report.results["integrity"].to_frame()
    held = table[table["check"].isin(UNKNOWN_KERNELS) & table["severity"].isin(GRAVE)]
    if held.empty:
        return []
    return [
        "How much of it is communication cannot be told: kernels may communicate that no rule knows (see the notes)."
    ]


def _of_the_peak(report: Report) -> list[str]:
    """How near a run without faults is to what its GPUs and links can do."""
    said = []
    if "mfu" in report.results and len(means := report.results["mfu"].by_rank()):
        first = report.results["mfu"].known().iloc[0]
        said.append(
            f"What there is to gain lies in the kernels: model FLOPs are {digits(means.mean())} % of the peak of "
            f"{first['gpu']} in {first['element_type']} ({first['peak_tflops_per_s']:,.0f} TFLOP/s)."
        )
    return said + _of_the_kernels(report)


def _of_the_kernels(report: Report) -> list[str]:
    """Whether compute is matrix work, or kernels that move data and that fusing shortens."""
    if "categories" not in report.results:
        return []
    compute = report.results["categories"].of_compute()
    if not compute["gpu_ns"].sum():
        return []
    matrix = compute["category"].isin(MATRIX_CATEGORIES)
    if matrix.all():
        return []
    share = 100 * float(compute.loc[~matrix, "gpu_ns"].sum()) / float(compute["gpu_ns"].sum())
    rest = compute[~matrix].groupby("category", observed=True)["gpu_ns"].sum().sort_values(ascending=False)
    most = " and ".join(str(name) for name in rest.index[:2])
    said = f"{digits(share)} % of compute kernel time in the capture is neither matrix work nor attention, {most} first"
    if _is_compiled(report):
        return [f"{said}; torch.compile has fused some of it already."]
    return [f"{said}: {tools_of(report.results.get('ranks')).fusing} may shorten it."]


def _is_compiled(report: Report) -> bool:
    """Whether there are kernels that torch.compile made."""
    kernels = report.results.get("kernels")
    return kernels is not None and bool(kernels.to_frame()["name"].astype("str").str.match(_OF_INDUCTOR).any())


_OF_INDUCTOR = r"triton_(?:poi|red|per|tem|for|spl|mix)_fused"


def _one_waits_while_another_idles(report: Report, split: Split, shares: pd.DataFrame) -> list[str]:
    """The sentence for one rank idle while another sits in a collective; whether it waits for it, findings say."""
    idle, comm = shares["idle_ns"], shares["exposed_comm_ns"]
    late, waiting = _late_and_waiting(shares)
    is_apart = idle[late] - idle[waiting] >= APART_PCT and comm[waiting] - comm[late] >= APART_PCT
    if late == waiting or not is_apart:
        return []
    table = split.table.set_index("rank")
    unit = " a step" if split.steps else ""
    return [
        (
            f"Rank {late}'s GPU is idle for {text(table.loc[late, 'idle_ns'] / split.per, Unit.NS)}{unit} "
            f"({digits(idle[late])} %) while rank {waiting} sits in {_collective(report, waiting)} for "
            f"{text(table.loc[waiting, 'exposed_comm_ns'] / split.per, Unit.NS)}{unit} ({digits(comm[waiting])} %)."
        )
    ]


def _late_and_waiting(shares: pd.DataFrame) -> tuple[int, int]:
    """The rank that idles most, and the one that sits in communication most."""
    return int(shares["idle_ns"].idxmax()), int(shares["exposed_comm_ns"].idxmax())


def _collective(report: Report, rank: int) -> str:
    """The collective of which most time is exposed on a rank."""
    nccl = report.results["nccl"].to_frame()
    own = nccl[nccl["rank"] == rank]
    if own.empty:
        return "communication"
    return collective_words(own.loc[own["exposed_comm_ns"].idxmax(), "collective"])


def _shared(name: str, share: pd.Series) -> str:
    if len(share) == 1:
        return f"For {digits(share.iloc[0])} % of the time it is {name}."
    if share.max() - share.min() < APART_PCT:
        return f"On average {digits(share.mean())} % of the time is spent {name}."
    return (
        f"On average {digits(share.mean())} % of the time is spent {name}, unevenly: {digits(share.max())} % on rank "
        f"{share.idxmax()}, {digits(share.min())} % on rank {share.idxmin()}."
    )
