"""Two or three sentences that say where the step time went: the findings' own words, or the breakdown's."""

from collections.abc import Sequence
from itertools import islice

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.overview.over_ranks import OverRanks
from traceanalyzer.findings import Finding, breakdown
from traceanalyzer.findings.capture.spoilt import spoilt_ranks
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import digits, per_cent, text
from traceanalyzer.meaning.severities import GRAVE
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import host
from traceanalyzer.report.words.parts import Split, over_ranks_of, time_parts_of

PROFILED_HOSTS = "Hosts are slower under a profiler: hold this against the time of a step without one."

MOST_FINDINGS = 2
MOST_SENTENCES = 3


def sentences(report: Report, split: Split | None) -> list[str]:
    """The verdict, most important first; says so when nothing is wrong."""
    told = _told(report.findings)
    found = [item.title for item in told]
    if split is None:
        return _without_gpu_work(report, found)
    over = over_ranks_of(report.results)
    if not over.of("idle_pct")["ranks"]:
        return ["No recorded GPU operation takes any time, so there is nothing to split."]
    if _opaque_pct(over) and not found:
        return _of_unknown(split, over)
    if spoilt_ranks(report.results["headline"], report.results["integrity"]):
        return found  # what the bars show of them is not the job's
    length = [_length(over, split), *_fused(over)]
    is_of_capture = not _opaque_pct(over) and all(_is_of_capture_alone(finding) for finding in report.findings)
    if not found or is_of_capture:
        return [*length, *found, *_from_breakdown(report.results, over)]
    # The picture that the bars show comes first, unless a finding says the same.
    pair = [
        seen.title
        for seen in _pair(report.results, over)
        if not any({*seen.ranks} <= {*item.ranks, *item.named} for item in told)
    ]
    return [*length, *pair, *found, *_of_profiled_hosts(report)]


def advice(findings: Sequence[Finding]) -> str | None:
    """What to do first: a sentence of the first finding that recommends something."""
    first = next((finding.recommendation for finding in findings if finding.recommendation), None)
    return None if first is None else f"{first.split('. ', maxsplit=1)[0].rstrip('.').removesuffix(' first')}."


def _without_gpu_work(report: Report, found: list[str]) -> list[str]:
    if not host.is_host_only(report.results):
        return ["No GPU operation was recorded, so there is nothing to split."]
    that_it_is, length, *longest = host.sentences(report.results)
    return [that_it_is, length, *found, *longest]


def _of_unknown(split: Split, over: OverRanks) -> list[str]:
    """What can be said where CUDA graphs were recorded whole: not that all is well."""
    return [
        _length(over, split),
        (
            "What those graphs hold is unknown: whether communication is hidden cannot be told. Record them node by "
            "node (nsys profile --cuda-graph-trace=node)."
        ),
        *(finding.title for finding in breakdown.much_idle(over)),
    ]


def _told(findings: Sequence[Finding]) -> list[Finding]:
    """The first findings that are grave or have a grave sign, each with the first two that it has taken in."""
    grave = _grave(findings)
    return [item for finding in grave for item in (finding, *finding.also[:2])][:MOST_SENTENCES]


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


def _length(over: OverRanks, split: Split) -> str:
    mean_ns, compute, opaque = over.of("window_ns")["mean_ns"], over.of("compute_pct"), _opaque_pct(over)
    what = f"A step takes {text(mean_ns, Unit.NS)}" if split.steps else f"The capture spans {text(mean_ns, Unit.NS)}"
    if opaque:
        return f"{what}. For {per_cent(opaque)} % of it CUDA graphs run that were recorded as one operation each."
    mean, least, most = compute["mean_pct"], compute["least_pct"], compute["most_pct"]
    if compute["ranks"] == 1:
        return f"{what}. The GPU computes for {per_cent(mean)} % of it."
    spread = f" ({digits(least)} to {per_cent(most)} % over ranks)" if most - least >= 1 else ""
    return f"{what}. GPUs compute for {per_cent(mean)} % of it{spread}."


def _opaque_pct(over: OverRanks) -> float:
    """Share of all ranks' time in which nothing but CUDA graphs of unknown content runs."""
    return over.of("opaque_pct")["of_all_pct"] or 0.0


def _from_breakdown(results: Results, over: OverRanks) -> list[str]:
    """What the split of time says first that it says at all."""
    found = (
        _pair(results, over)
        or [*breakdown.much_idle(over), *breakdown.much_exposed(over)]
        or breakdown.unknown_kernels(results["integrity"])
        or breakdown.nothing_without_others(results["integrity"], over)
        or [
            *breakdown.nothing(over),
            *breakdown.far_from_peak(results["mfu"], over),
            *breakdown.not_matrix_work(results["categories"], results["kernels"], results["ranks"]),
        ]
    )
    return [finding.title for finding in found]


def _pair(results: Results, over: OverRanks) -> list[Finding]:
    return breakdown.one_waits_while_another_idles(time_parts_of(results), over, results["nccl"])


def _fused(over: OverRanks) -> list[str]:
    """The share of kernels that compute and communicate at once: neither figure is without them."""
    mean = over.of("fused_pct")["mean_pct"]
    if not mean:
        return []
    said = f"{per_cent(mean)} % of the time runs kernels that compute and communicate at once"
    return [f"{said}: they count as compute, and what communication costs inside them cannot be told."]
