"""What a report says in words: verdict, data quality, quantities, names."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Results, column_named, overview
from traceanalyzer.analyses.breakdown import steps_of
from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.analyses.engine import by_check
from traceanalyzer.analyses.engine import reasons as of_checks
from traceanalyzer.analyses.host.activity import AUTOGRAD, MAIN
from traceanalyzer.analyses.host.cpu_time import HostWork, mean_steps_ns, per_step_ns
from traceanalyzer.analyses.integrity import Integrity
from traceanalyzer.analyses.statistics import PERCENT, RATIO, SHARE
from traceanalyzer.findings import Finding
from traceanalyzer.findings.run import count_of_steps
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.kinds import COLLECTIVES as KINDS_COLLECTIVES
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Column, Unit, Written, is_known, signed, stem, text, time_text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import (
    GRAVE,
    HIGH,
    HOST,
    WAIT,
    Part,
    numbered,
    whole,
)
from traceanalyzer.model import Skipped
from traceanalyzer.report.contents import LAYOUT, Report

# What a reader must know before trusting the figures, and which figures carry a mark for it.


def care_sentences(report: Report) -> list[str]:
    """One sentence for each data-quality issue."""
    return [*skipped(report.skipped), *of_what_is_here(report)]


def skipped(items: Iterable[Skipped], most: int | None = None) -> list[str]:
    """What was left out and why, once for each folder and reason; of more files or folders the first `most` by name."""
    alike: dict[str, dict[str, list[str]]] = {}
    for item in items:
        alike.setdefault(item.why, {}).setdefault(item.what.rpartition("/")[0], []).append(item.what)
    sentences: list[str] = []
    for why, folders in alike.items():
        if most is not None and len(folders) > most:
            whats = [what for each in folders.values() for what in each]
            sentences.append(f"{len(whats):,} files in {len(folders):,} folders ({_named(whats, most)}): {why}")
        else:
            sentences += [f"{_listed(folder, whats, most)}: {why}" for folder, whats in folders.items()]
    return sentences


def _listed(folder: str, whats: list[str], most: int | None) -> str:
    if len(whats) == 1:
        return whats[0]
    named = _named([what.removeprefix(folder).lstrip("/") for what in whats], most)
    return f"{len(whats):,} files in {folder} ({named})" if folder else named


def _named(names: list[str], most: int | None) -> str:
    left = len(names) - (most or len(names))
    return ", ".join([*names[:most], f"{left:,} more"] if left > 0 else names)


def of_what_is_here(report: Report) -> list[str]:
    """The same without what was skipped: notes on the files, and what the integrity checks found, worst first."""
    return [*of_files(report), *(_checks(report.results["integrity"]) if "integrity" in report.results else [])]


def of_files(report: Report) -> list[str]:
    """Notes on the choice of files, and those of their readers."""
    ranks = report.results["ranks"].to_frame()
    return [*report.notes, *unused_step(report.results), *_of_some_ranks(ranks.dropna(subset="notes"), len(ranks))]


def unused_step(results: Results) -> list[str]:
    """Why the known step without the profiler is not used, where it contradicts the trace."""
    return [results["replay"].note] if "replay" in results and results["replay"].note else []


def doubted(results: Results) -> dict[str, str]:
    """Results whose figures the integrity checks make unreliable, by name, and why."""
    return {name: " ".join(sentences) for name, sentences in reasons(results).items()}


def reasons(results: Results) -> dict[str, tuple[str, ...]]:
    """The same, sentence by sentence."""
    return of_checks(results["integrity"].to_frame() if "integrity" in results else None)


def doubt_of(names: Iterable[str], doubts: Mapping[str, Sequence[str]]) -> str | None:
    """Why a figure that comes from these Results is in doubt, each reason once; `None` when it is not."""
    return " ".join(dict.fromkeys(sentence for name in names for sentence in doubts.get(name, ()))) or None


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


# What is said of a capture without GPU work: what the CPUs did.


def is_host_only(results: Results) -> bool:
    """Whether no rank has GPU work, and there is something to say of the host."""
    return not len(results["headline"]) and "host_work" in results and bool(len(results["host_work"]))


def how_long(results: Results) -> str:
    """How long a step takes, what the CPU threads spend it in, and which step is far longer."""
    step_ns = mean_steps_ns(results["steps"])
    if step_ns.empty:
        return "No complete step is marked, so the step time is unknown."
    least, most = text(step_ns.min(), Unit.NS), text(step_ns.max(), Unit.NS)
    spread = f" (ranks: {least} to {most})" if least != most else ""
    summary = f"A step takes {text(step_ns.mean(), Unit.NS)}{spread}{_spent_in(results['host_work'], step_ns)}."
    longest = max(results["cpu_steps"].rows(), key=lambda row: row["mean_ns"])
    if longest["times_median"] is not None and longest["times_median"] > RATIO:
        summary += f" Step {longest['step']} is the longest: {text(longest['mean_ns'], Unit.NS)}."
    return summary


def host_sentences(results: Results) -> list[str]:
    """Why there is no GPU work, and how long a step takes."""
    checks = results["integrity"].rows()
    return [*dict.fromkeys(row["sentence"] for row in checks if row["check"] == "no_gpu_operations"), how_long(results)]


def _spent_in(host_work: HostWork, step_ns: pd.Series) -> str:
    """`: main thread 64% in backward, 22% in forward, 9% unrecorded; autograd thread 40%`."""
    main, autograd = (per_step_ns(host_work, role, step_ns.index) for role in (MAIN, AUTOGRAD))
    of_step = 100 / step_ns.mean()
    shares = main.mean() * of_step
    texts = [f"{pct:.0f}% in {short_name(str(name))}" for name, pct in shares.items() if pct >= PERCENT]
    texts = texts[: LAYOUT.named]
    unrecorded = (step_ns - main.sum(axis=1)).clip(lower=0).mean() * of_step
    texts += [f"{unrecorded:.0f}% unrecorded"] if len(shares) and unrecorded >= PERCENT else []
    backward = autograd.sum(axis=1).mean() * of_step
    threads = [f"main thread {', '.join(texts)}"] if texts else []
    threads += [f"autograd thread {backward:.0f}%"] if backward >= PERCENT else []
    return f": {'; '.join(threads)}" if threads else ""


# The parts that each rank's time is split into, as the bars, tiles and verdict show them.


class Split(Struct, frozen=True):
    """Each rank's time by part.

    Attributes:
        basis: what it is of: `steps 2 to 3`, or `whole capture`.
        steps: number of those steps; `None` for a whole capture.
        parts: in the order of the bars.
        table: of `time_parts`: `rank`, `window_ns`, and of each part its time in a mean step (or the capture) and its
            share; the parts add up, also where what is unknown makes those that are known too small.
    """

    basis: str
    steps: int | None
    parts: tuple[Part, ...]
    table: pd.DataFrame

    @property
    def whole(self) -> str:
        """Words for what the times are of."""
        return whole(self.steps)

    @property
    def has_wait(self) -> bool:
        """Whether exposed communication is split into transfer and wait."""
        return any(part is WAIT for part in self.parts)


def split(results: Results) -> Split | None:
    """The parts of `time_parts` that add up to the windows, called as the bars call them; `None` without any rank."""
    table = _time_parts(results).table
    if table.empty:
        return None
    return Split(str(table["basis"].iloc[0]), count_of_steps(table), overview.leaves(table), table)


def split_steps(results: Results) -> tuple[pd.DataFrame, tuple[Part, ...]]:
    """Each rank's steps, and the parts that add up to each step; empty where there are no steps."""
    table = overview.parts_of_steps(results["steps"], results["exposed_comm"], results["idle"])
    return table, () if table.empty else overview.leaves(table)


def _time_parts(results: Results) -> overview.TimeParts:
    """The Result; where an analysis failed that it needs, what the other ones give."""
    made = results["time_parts"]
    if len(made):
        return made
    return overview.time_parts_across(
        results["headline"], results["steps"], results["exposed_comm"], results["idle"], results["step_needs"]
    )


def figures_of_ranks(results: Results) -> pd.DataFrame:
    """Each rank's figures by name, as floats: rows of `time_parts`, and what `headline` and `mfu` tell beside."""
    parts, heads = (made.to_frame().set_index("rank") for made in (_time_parts(results), results["headline"]))
    beside = heads[["step_std_ns", "fused_pct", "overlap_pct"]].assign(mfu_pct=results["mfu"].by_rank())
    return parts.drop(columns="basis").join(beside).astype("float64")


def unsplit_calls(results: Results, steps: Sequence[int] = ()) -> pd.DataFrame:
    """The calls of these steps, or all, whose transfer and wait are not separated: rows of `call_waits`."""
    if "call_waits" not in results:
        return pd.DataFrame(columns=["rank", "step", "collective", "is_matched", "why_not_split"])
    frame = results["call_waits"].to_frame()
    frame = frame[frame["transfer_ns"].isna()]
    return frame[frame["step"].isin(steps)] if len(steps) else frame


def headline_steps(results: Results) -> list[int]:
    """Numbers of the steps that the headline is of; none when it is of the whole capture."""
    return steps_of(results["headline"], results["steps"])


# What ran: strategy, model, batch and dtype.


def headline_facts(info: RunInfo) -> list[str]:
    """What a page's first lines say of the run: strategy, model, batch and dtype, as far as they are known."""
    model = info.model or {}
    layers, parameters = model.get("layers"), model.get("parameters")
    size = f"{parameters / 1e6:,.0f} M parameters" if isinstance(parameters, int | float) else ""
    inside = ", ".join(filter(None, [f"{layers} layers" if layers else "", size]))
    batch = info.batch.global_batch if info.batch else None
    facts = [
        info.strategy,
        f"model of {inside}" if inside else None,
        f"batch {batch} × {model['seq_len']:,} tokens" if batch and isinstance(model.get("seq_len"), int) else None,
        info.dtype,
        "compiled" if info.compile else None,
        "activation checkpointing" if info.activation_checkpointing else None,
    ]
    return [str(fact) for fact in facts if fact]


# The first screen: what a step is bound by, the cards of the first findings, and what else there is, in one line each.


_BOUND: Mapping[str, str] = MappingProxyType(
    {
        "GPU-bound": "compute",
        "CPU-bound": "CPU work",
        "Input-bound": "waiting for data",
        "Communication-bound": "exposed communication",
        "Copy-bound": "copying",
    }
)
"""What takes most of the critical path without the profiler, by what a step is bound by."""


class Verdict(Struct, frozen=True):
    """What a step is bound by, and the figures that show it."""

    bound: str
    figures: str

    @property
    def words(self) -> str:
        """`CPU-bound: CPU work is 60% of the critical path · step time 157 ms · GPU compute 15%`."""
        return f"{self.bound}: {self.figures}"


def verdict(report: Report, split: Split | None) -> Verdict | None:
    """The verdict of a capture with GPU work, by the critical path without the profiler; `None` of another one."""
    if split is None:
        return None
    means = figures_of_ranks(report.results).mean()
    if not is_known(means["idle_pct"]):
        return None
    bound, what = _bound_by(report, means)
    length = time_text(means["window_ns"])
    figures = (
        what,
        (f"step time {length}" if split.steps else f"{length} recorded") + _unprofiled(report, means["window_ns"]),
        f"GPU compute {means['compute_pct']:.0f}%"
        if is_known(means["compute_pct"]) and "GPUs compute" not in what
        else "",
    )
    return Verdict(bound, " · ".join(filter(None, figures)))


def _unprofiled(report: Report, window_ns: float) -> str:
    """The step that savings are of, where it is shorter than the profiled one."""
    path = report.results.get("bottleneck")
    if path is None or path.table.empty or not path.table["is_unprofiled"].iloc[0]:
        return ""
    unprofiled, profiled = time_text(path.table["step_ns"].iloc[0]), time_text(window_ns)
    overhead = next((item.evidence[0] for item in report.findings if item.kind == "profiler_overhead"), None)
    about = "" if overhead and overhead["is_known"] else "about "
    is_shorter = path.table["step_ns"].iloc[0] < window_ns and unprofiled != profiled
    return f" ({about}{unprofiled} without the profiler)" if is_shorter else ""


def _bound_by(report: Report, means: pd.Series) -> tuple[str, str]:
    """The class of the bottleneck and what shows it: the first finding that saves much, or the critical path."""
    if any(item.is_about_capture and item.severity == HIGH for item in report.findings):
        return "Inconclusive", "the recording lacks what conclusions need"
    first = next((item for item in report.findings if item.leads and item.severity == HIGH), None)
    if first is not None and "pipeline" in first.kind:
        return "Pipeline bubble", "stages wait for each other"
    if first is not None and first.ranks:
        return first.headline.partition(":")[0], f"ranks wait for {numbered('rank', first.ranks)}"
    path = report.results.get("bottleneck")
    return _without_path(report, means) if path is None or path.bound is None else _by_path(report, path)


def _by_path(report: Report, path: Any) -> tuple[str, str]:
    """The same by the critical path."""
    shares, most = path.shares, path.bound
    first = next((item for item in report.findings if item.leads), None)
    is_input = first is not None and first.headline.startswith("Input-bound")
    bounds = ["Input-bound", most] if is_input else [most]
    bounds = list(dict.fromkeys(bounds))
    of_path = f"{_BOUND[bounds[0]]} is {shares[bounds[0]]:.0f}% of the critical path"
    lacks_data = any(item.kind == "missing_data" and item.severity in GRAVE for item in report.findings)
    if lacks_data and most == "Communication-bound":
        return "Bottleneck unknown", of_path.replace("exposed communication", "communication, or waiting for ranks,")
    if not is_input and len(path.bounds) > 1:
        return " or ".join(path.bounds), f"{of_path}, unless the profiler costs more than estimated"
    rest = "".join(f", {_BOUND[bound]} {shares[bound]:.0f}%" for bound in bounds[1:])
    return " and ".join(bounds), f"{of_path}{rest}"


def _without_path(report: Report, means: pd.Series) -> tuple[str, str]:
    """The same by the time of GPUs, where no path says what bounds the step."""
    launching_pct, compute_pct = means[f"{HOST.key}_pct"], means["compute_pct"]
    if launching_pct > 100 * SHARE:
        return "CPU-bound", f"GPUs wait for kernel launches {launching_pct:.0f}% of the time"
    if compute_pct > 100 * SHARE:
        return "GPU-bound", f"GPUs compute {compute_pct:.0f}% of the time"
    is_cold = any(
        item.kind == "stalls" and item.is_about_capture and item.severity in GRAVE for item in report.findings
    )
    bound = "First-call work" if is_cold else "Bottleneck unknown"
    return bound, f"GPUs are idle {means['idle_pct']:.0f}% of the time"


def headline_of(report: Report, split: Split | None) -> str:
    """`ddp · 2×H200 · data parallel 2 · steps 3–6`."""
    strategy = report.run_info.strategy if report.run_info else None
    parts = dict.fromkeys((report.label, *hardware(report), strategy or shape(report), split.basis if split else None))
    return " · ".join(str(part) for part in parts if part)


def hardware(report: Report) -> list[str]:
    """`2×H200`, or of unknown GPUs how many ranks there are."""
    ranks = report.results["ranks"].to_frame()
    models = ranks["device_name"].dropna().value_counts()
    gpus = [f"{count:,}×{model.removeprefix('NVIDIA ')}" for model, count in models.items()]
    return gpus or [f"{len(ranks):,} rank{'' if len(ranks) == 1 else 's'}"]


def shape(report: Report) -> str | None:
    """How the ranks divide the model and its data, as far as process groups tell it."""
    sizes = report.results["ranks"].to_frame()["world_size"].dropna().unique().tolist()
    world = sizes[0] if len(sizes) == 1 else None
    return mesh(report.results["groups"].table, world) if "groups" in report.results else None


def cards(findings: Sequence[Finding]) -> list[Finding]:
    """What has a card on the first screen: what saves something; without any what the capture is unfit for."""
    leading = [item for item in findings if item.leads]
    return leading or [item for item in findings if item.is_about_capture and item.severity in GRAVE]


def fields(finding: Finding) -> dict[str, str]:
    """A card's fields below its headline, by name; those that are not known are left out."""
    saves = finding.saves
    texts = {
        "Why": finding.why,
        "Fix": finding.fix,
        "Saves": saves and saves.words,
        "Confidence": saves and saves.confidence,
        "Caveat": finding.caveat,
        "See also": " ".join(other.headline for other in finding.also if other.kind != "uneven_work"),
        "What-if": finding.what_if if saves else None,
    }
    return {name: text for name, text in texts.items() if text}


def also_seen(findings: Sequence[Finding]) -> list[Finding]:
    """Facts without a sure saving that have no card."""
    shown = cards(findings)
    every = (item for item in findings if not item.is_about_capture and not item.is_nothing)
    return [item for item in every if item not in shown]


def fact(finding: Finding) -> str:
    """What was seen, and what its change saves at most, if that is no more than the time that was seen."""
    saves, stated_ns = finding.saves, finding.stated_ns
    is_held = saves is not None and (stated_ns is None or saves.high_ns <= stated_ns)
    return f"{finding.headline} {saves.at_most}" if saves is not None and is_held else finding.headline


def nothing_to_gain(findings: Sequence[Finding]) -> str:
    """What was replayed and saves nothing, in one line; empty without any."""
    shown = {item.kind for item in (*cards(findings), *also_seen(findings))}
    nothing = (item.kind for item in findings if item.is_nothing and item.kind not in shown)
    kinds = dict.fromkeys(_NOUNS.get(kind, kind.replace("_", " ")) for kind in nothing)
    return f"Checked, nothing to gain: {', '.join(kinds)}." if kinds else ""


_NOUNS = {
    "unfused": "unfused operators",
    "exposed_communication": "exposed transfers",
    "launch_bound": "launch overhead",
    "per_tensor_work": "per-tensor loops",
}
"""Kinds of findings whose name is no noun."""


def overlap(findings: Sequence[Finding]) -> str:
    """What holds for the savings of several cards; empty where one or none saves time."""
    savings = [card.saves for card in cards(findings) if card.saves is not None]
    if len(savings) < 2:
        return ""
    what = "are of the step without the profiler. They overlap" if savings[0].is_unprofiled else "overlap"
    return f"Savings {what}; don't add them up. Sorted by their lower ends."


def caveats(findings: Sequence[Finding]) -> list[Finding]:
    """What the capture lacks, where no card says it."""
    shown = cards(findings)
    return [item for item in findings if item.is_about_capture and item not in shown]


def capture_line(report: Report) -> str:
    """What the capture lacks, in one line at the foot of the first screen: findings' headlines, then other checks."""
    reported = {str(row.get("check")) for item in report.findings if item.is_about_capture for row in item.evidence}
    table = report.results["integrity"].to_frame() if "integrity" in report.results else pd.DataFrame()
    found = table.loc[table["severity"].isin(GRAVE), "check"].astype("str").unique() if len(table) else ()
    checks = [check.replace("_", " ") for check in found if check not in reported]
    parts = [item.headline for item in caveats(report.findings)]
    return " ".join([*parts, *([f"Data quality: {', '.join(checks)}."] if checks else [])])


def sentences(report: Report, split: Split | None) -> list[str]:
    """The first screen as text: verdict, cards, facts, what gains nothing, what the capture lacks."""
    if split is None:
        return without_gpu_work(report)
    found = verdict(report, split)
    shown = cards(report.findings)[: LAYOUT.named]
    texts = [(item.text, f"Saves {item.saves.words}." if item.saves and item.leads else "") for item in shown]
    return [
        f"{found.words}." if found else "No recorded GPU operation takes any time.",
        *(" ".join(filter(None, parts)) for parts in texts),
        *(f"Also seen: {fact(item)}" for item in also_seen(report.findings)[: LAYOUT.named]),
        *filter(None, (nothing_to_gain(report.findings), capture_line(report))),
    ]


def without_gpu_work(report: Report) -> list[str]:
    """What there is to say of a capture without GPU work: what the CPUs did; nothing of another one."""
    if len(report.results["headline"]):
        return []
    if not is_host_only(report.results):
        return ["No GPU operation was recorded, so there is nothing to split."]
    return host_sentences(report.results)


# What a page calls the columns and values that files and code call by names with underscores.


_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "gpu": "GPU",
        "host": "CPU",
        "api": "API",
        "mfu": "MFU",
        "flops": "FLOPs",
        "p2p": "P2P",
        "comm": "communication",
        "busbw": "bus bandwidth",
        "algbw": "algorithm bandwidth",
        "std": "standard deviation",
    }
)

_VERSIONS: Mapping[str, str] = MappingProxyType(
    {"cuda_driver": "CUDA driver", "cuda_runtime": "CUDA runtime", "nccl": "NCCL", "torch": "PyTorch"}
)

_FIGURE = re.compile(r"(\d) (%|[nµm]?s|[kMGT]?B|[kMGT]?B/s|[MGT]FLOP(?:/s)?)(?![\w/])")
"""A figure's last digit, and its unit after a plain space."""


POINTS = "pp"
"""Percentage points."""


def change_text(row: Mapping[str, Any] | pd.Series) -> str:
    """Percent of the base's value, or points of a percentage: never one for the other."""
    if is_known(row["change_pct_points"]):
        return f"{signed(float(row['change_pct_points']))} {POINTS}"
    if is_known(row["change_pct"]):
        pct = float(row["change_pct"])
        return f"{signed(pct) if pct <= LAYOUT.change_pct else f'> {signed(LAYOUT.change_pct)}'}%"
    return ""


def label(name: str, column: Column) -> str:
    """A column in words, without its unit: `is_complete` is `complete`, `gpu_own_ns` `GPU own`."""
    if column.label or name == "host":
        return column.label or name  # of a machine
    words = stem(name).removeprefix("is_").split("_")
    return " ".join(_WORDS.get(word, re.sub(r"^(\d+)us$", "\\1\u202fµs", word)) for word in words)


def words(text: str, column: Column) -> str:
    """What a person calls the value of a column: kernels by their short names, ours without underscores."""
    if column.written in _WORDINGS:
        return _WORDINGS[column.written](text)
    return collective_words(text) if text in KINDS_COLLECTIVES else text


def unbroken(text: str) -> str:
    """A sentence, or a page's text, in which no line breaks between a figure and its unit."""
    return type(text)(_FIGURE.sub("\\1\u202f\\2", text))


def distinguishing_parts(names: Collection[str]) -> dict[str, str]:
    """What each of several names has that not all of them have, in its order: `64x4 TNN`; cut when it is long."""
    parts = {name: dict.fromkeys(re.findall(r"[^\W_]+", name)) for name in names}
    common = set.intersection(*map(set, parts.values()))
    differences = {name: " ".join(part for part in own if part not in common) for name, own in parts.items()}
    most = LAYOUT.difference_characters
    return {name: text if len(text) <= most else f"{text[: most - 1]}…" for name, text in differences.items()}


def versions(text: str) -> list[str]:
    """`cuda_driver 13.0, nccl 2.28.9` as people write it, one by one."""
    named = [part.partition(" ") for part in text.split(", ")]
    return [f"{_VERSIONS.get(name, name.replace('_', ' '))} {version}" for name, _, version in named]


_WORDINGS: Mapping[Written, Callable[[str], str]] = MappingProxyType(
    {
        Written.KERNEL: short_name,
        Written.COLLECTIVE: collective_words,
        Written.KIND: lambda text: "communication" if text == "comm" else text,
        Written.OURS: lambda text: text.replace("_", " "),
        Written.FIGURE: lambda text: label(text, column_named(text)),  # its unit stands in the columns' heads
        Written.DTYPE: element_types,
        Written.VERSIONS: lambda text: ", ".join(versions(text)),
    }
)
