"""What every kind of finding measures by: the run's mean step, its ranks by name, replay, tools, and CPUs."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.rank_sets import JOB, Place, name_of
from traceanalyzer.analyses.blame.step_budget import DOING, StepNeeds, WhatRan, host_needs_ns
from traceanalyzer.analyses.breakdown import complete_steps, shared_steps
from traceanalyzer.analyses.grouping import memoized_by_tables
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.host.host_names import holds_whole_pass, is_launch, is_sync
from traceanalyzer.analyses.replay.changes import OF_HOSTS, Change
from traceanalyzer.analyses.replay.replay import Engine
from traceanalyzer.analyses.statistics import LEAST_PCT, PERCENT, SHARE, few_longer
from traceanalyzer.findings.savings import saved_ns
from traceanalyzer.meaning.vocabulary import HOST, numbered
from traceanalyzer.readers import FORMATS, Format

_VENDORS = {
    "AMD": (r"^AMD\b|\bMI\d{2,3}|\bRadeon\b", r"^hip[A-Z]"),
    "Intel": (r"^Intel\b", r"^(?:ur|ze)[A-Z]"),
}
"""How models, and the calls by which CPUs drive the GPUs, begin."""

_ENGINES = {
    "vLLM": r"^(?:execute_(?:\d+_)?context_|execute_new_|execute_model|gpu_model_runner)",
    "SGLang": r"^step\[",
    "TensorRT-LLM": r"^\[Executor\] _forward_step",
}
"""How an inference engine names its iterations."""

_FRAMEWORK = re.compile(
    r"\b(?:at|c10d?|torch|pytorch\w*|caffe2|vllm|sglang|tensorrt_llm|transformer_engine|xla|stream_executor|tensorflow)::"
    r"|^triton_(?:poi|red|per|tem|for|spl|mix)_|\bpytorch_flash|flash_(?:fwd|bwd)|multi_tensor_apply|^nvjet_|^loop_\w*fusion"
)
"""Kernels of machine-learning frameworks."""


class Terms(Struct, frozen=True):
    """Names of tools for one vendor and framework; those of NVIDIA are the default.

    Attributes:
        framework: `torch`, `jax`, the name of an inference engine (`vLLM`, …), or `native` for a program of none.
        vendor: `NVIDIA`, `AMD` or `Intel`.
        nccl: the collective library.
        graphs: recorded launches that are replayed as one.
        link: the links between GPUs of a host.
        health_command: shows a GPU's clocks, power and throttling.
        processes_command: shows which processes have a GPU.
        topology_command: shows how GPUs are connected.
        allocator: the setting that lets freed memory serve requests of other sizes.
    """

    framework: str = "torch"
    vendor: str = "NVIDIA"
    nccl: str = "NCCL"
    graphs: str = "CUDA graphs"
    link: str = "NVLink"
    health_command: str = "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE"
    processes_command: str = "nvidia-smi pmon"
    topology_command: str = "nvidia-smi topo -m"
    allocator: str = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

    @classmethod
    def of(cls, results: Results) -> "Terms":
        """By the GPUs' models, the traces' formats, and the names of kernels, operators and iterations."""
        return replace(_TERMS[_vendor(results)], framework=_framework(results))

    @property
    def is_serving(self) -> bool:
        """Whether an inference engine runs."""
        return self.framework in _ENGINES

    def choose(self, texts: Mapping[str, str]) -> str:
        """The text for this framework; `engine` serves all inference engines, `torch` is the default."""
        own = texts.get(self.framework) or (texts.get("engine") if self.is_serving else None)
        return own or texts["torch"]


_TERMS: Mapping[str, Terms] = {
    "NVIDIA": Terms(),
    "AMD": Terms(
        vendor="AMD",
        nccl="RCCL",
        graphs="HIP graphs",
        link="xGMI",
        health_command="amd-smi metric --clock --power --temperature",
        processes_command="amd-smi process",
        topology_command="rocm-smi --showtopo",
        allocator="PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
    ),
    "Intel": Terms(
        vendor="Intel",
        nccl="oneCCL",
        graphs="SYCL graphs",
        link="Xe Link",
        health_command="xpu-smi stats -d <gpu>",
        processes_command="xpu-smi ps",
        topology_command="xpu-smi topology -m",
        allocator="PYTORCH_ALLOC_CONF=expandable_segments:True",
    ),
}


def _vendor(results: Results) -> str:
    models = _texts(results, "ranks", "device_name")
    for vendor, (model, call) in _VENDORS.items():
        if len(models) and models.str.contains(model).all():
            return vendor
        if _texts(results, "cuda_api", "name").str.contains(call).any():
            return vendor
    return next((one.vendor for one in _formats(results) if one.vendor != "NVIDIA"), "NVIDIA")


def _framework(results: Results) -> str:
    names = _texts(results, "iterations", "name")
    for engine, pattern in _ENGINES.items():
        if names.str.contains(pattern).any():
            return engine
    frameworks = {one.framework for one in _formats(results)}
    if "jax" in frameworks or _texts(results, "ranks", "versions").str.contains("XLA").any():
        return "jax"
    kernels, operators = _texts(results, "kernels", "name"), _texts(results, "operators", "operator")
    is_framework = kernels.str.contains(_FRAMEWORK).any() or operators.str.contains(r"^\w[^(]*::").any()
    return "native" if frameworks == {""} and len(kernels) and not is_framework else "torch"


def _formats(results: Results) -> list[Format]:
    return [FORMATS[name] for name in _texts(results, "ranks", "format") if name in FORMATS]


def _texts(results: Results, name: str, column: str) -> pd.Series:
    """The distinct values; none where the Result or the column is missing."""
    result = results.get(name)
    table = pd.DataFrame() if result is None else result.table
    return pd.Series(table[column].dropna().astype("object").unique() if column in table else [], dtype="str")


def count_of_steps(table: pd.DataFrame) -> int | None:
    """Of how many complete steps the rows of a headline are; `None` of a whole trace."""
    steps = table["steps"].iloc[0]
    return None if pd.isna(steps) else int(steps)


@dataclass(frozen=True)
class Run:
    """A run as kinds of findings ask about it.

    Attributes:
        results: all Results; a kind takes those that it needs as parameters.
        engine: the job's graph; `None` where nothing can be replayed.
        steps: the complete steps that all ranks share; `None` where figures cover the whole trace.
        window_ns: length of a mean step (or of the trace) by rank.
    """

    results: Results
    engine: Engine | None
    steps: tuple[int, ...] | None
    window_ns: pd.Series

    @classmethod
    def of(cls, results: Results) -> "Run":
        """The run of these Results, which hold `headline` and `steps`."""
        headline = results["headline"].table
        engine = results["replay"].engine if "replay" in results else None
        windows = headline.set_index("rank")["window_ns"].astype("float64")
        numbers = None
        if not headline.empty and headline["steps"].notna().iloc[0]:
            numbers = tuple(shared_steps(complete_steps(results["steps"].table), set(windows.index)))
            windows /= int(headline["steps"].iloc[0])
        return cls(results, engine, numbers, windows)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of the capture."""
        return tuple(map(int, self.window_ns.index))

    @property
    def step_ns(self) -> float:
        """Length of a mean step of a mean rank; 0 without ranks."""
        return float(self.window_ns.mean()) if len(self.window_ns) else 0.0

    @property
    def count(self) -> int:
        """By what sums over the complete steps are divided; 1 for a whole trace."""
        return len(self.steps) if self.steps else 1

    @property
    def each(self) -> str:
        """`/step` behind a time, or nothing for a whole trace."""
        return "/step" if self.steps else ""

    @property
    def per(self) -> str:
        """`per step`, or `in the trace`."""
        return "per step" if self.steps else "in the trace"

    @cached_property
    def terms(self) -> Terms:
        """What tools are called for this run's vendor and framework."""
        return Terms.of(self.results)

    def is_worth(self, time_ns: float) -> bool:
        """Whether a time per step is at least the smallest saving that is a finding."""
        return self.step_ns > 0 and 100 * time_ns >= LEAST_PCT * self.step_ns

    def within(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of the complete steps, of a table with a `step`; all rows for a whole trace."""
        return table if self.steps is None else table[table["step"].isin(self.steps)]

    def per_step(self, table: pd.DataFrame, columns: Sequence[str], by: Iterable[str] = ("rank",)) -> pd.DataFrame:
        """Sums of the columns over the complete steps divided by their number, a row for each key; absent stays NA.

        A table with rows for whole traces (`step` absent) gives those where the run has no complete step.
        """
        if "step" in table:
            table = self.within(table) if self.steps is not None else table[table["step"].isna()]
        numbers = table[[*columns]].astype("Float64")
        return numbers.groupby([table[name] for name in by], observed=True).sum(min_count=1) / self.count

    @cached_property
    def recorded(self) -> int:
        """By what sums over all ranks and all that was recorded are divided: a mean step, or a mean rank's trace."""
        numbered = 0 if self.steps is None else int(self.results["steps"].table["step"].notna().sum())
        return max(numbered, len(self.ranks))

    @property
    def recorded_each(self) -> float:
        """By what a rank's sums over all that was recorded are divided."""
        return self.recorded / len(self.ranks)

    def shorter_operators(self, spared_ns: pd.Series) -> tuple[Change, ...]:
        """Operators with so much less GPU time (ns by name, over all that was recorded), if together worth it."""
        own_ns = self.results["operators"].table.groupby("operator", observed=True)["gpu_own_ns"].sum()
        spared_ns = spared_ns[spared_ns.index.isin(own_ns.index[own_ns > 0])].sort_values(ascending=False)
        if not self.is_worth(spared_ns.sum() / self.recorded):
            return ()
        worth = spared_ns[[self.is_worth(ns / self.recorded) for ns in spared_ns]]
        spared_ns = worth if len(worth) else spared_ns[100 * spared_ns >= PERCENT * spared_ns.sum()]
        left = {str(name): max(0.0, 1 - float(ns) / float(own_ns[name])) for name, ns in spared_ns.items()}
        return tuple(
            Change("operator", part if 100 * part >= PERCENT else 0.0, name=name) for name, part in left.items()
        )

    def few_steps(self, table: pd.DataFrame, column: str) -> tuple[int, ...]:
        """The few steps in which most of a time is; empty where it is in all of them, or of a whole trace."""
        if not self.steps or self.count < 2:
            return ()
        by_step = self.within(table).groupby("step")[column].sum().reindex(self.steps).fillna(0).astype("float64")
        few = by_step[few_longer(by_step)]
        return tuple(map(int, few.index)) if len(few) and few.sum() >= SHARE * by_step.sum() else ()

    def can_replay(self, *changes: Change) -> bool:
        """Whether the graph holds what the changes are about."""
        if self.engine is None:
            return False
        return self.engine.has_hosts or not any(change.part in OF_HOSTS for change in changes)

    def saved_ns(self, *changes: Change) -> int:
        """What the changes, made together, save of a mean step, with the typical profiler overhead; 0 if unknown."""
        if self.engine is None or not self.can_replay(*changes):
            return 0
        return max(0, saved_ns(self.engine, changes))

    def peers_of(self, ranks: Collection[int]) -> str:
        """All other ranks in words: `rank 0` of two, else `its peers` or `their peers`."""
        others, is_one = {*self.ranks} - {*ranks}, len(ranks) == 1
        return numbered("rank", others) if is_one and len(others) == 1 else f"{'its' if is_one else 'their'} peers"

    def who(self, ranks: Collection[int]) -> str:
        """Ranks in words: `rank 5 (host b07)`, `ranks 8–15 (host b07)`, `both ranks`, `all 8 ranks`."""
        return in_words(ranks, self.ranks, self.results.get("places"))


def in_words(ranks: Collection[int], every: Sequence[int], places: Any) -> str:
    """Some of `every` rank in words, with the name of their `Places` where chance would hardly put them there."""
    chosen = sorted({int(rank) for rank in ranks})
    if len(chosen) > 1 and set(chosen) >= {*every}:
        return "both ranks" if len(chosen) == 2 else f"all {len(chosen):,} ranks"
    known: tuple[Place, ...] = places.places() if places is not None else ()
    name = name_of(chosen, every, known, places.whole(len(every)) if places is not None else JOB)
    return f"{numbered('rank', chosen)}{f' ({name})' if name else ''}"


# What CPUs do while their GPUs wait for them.


def doing(run: Run, what_ran: WhatRan, rank: int, what: str = DOING) -> pd.Series:
    """Idle time of a rank's GPU by what its CPU does, or in which range it is, before launches: ns per step."""
    times = _idle_by_rank(what_ran.table, what=what, steps=run.steps)
    own = times.xs(rank) if rank in times.index else times[:0].droplevel("rank")
    return own.sort_values(ascending=False) / run.count


@memoized_by_tables
def _idle_by_rank(table: pd.DataFrame, *, what: str, steps: tuple[int, ...] | None) -> pd.Series:
    """The same of each rank and name, in all of these steps."""
    is_asked = (table["part"] == HOST.column) & (table["what"] == what)
    own = table[is_asked if steps is None else is_asked & table["step"].isin(steps)]
    return own.groupby(["rank", "name"], observed=True)["total_ns"].sum()


def other_work(times: pd.Series) -> str | None:
    """What takes most of the idle time of `doing` and is neither an operator nor a call of the GPU's runtime."""
    if times.empty or times.iloc[0] < SHARE * times.sum():
        return None
    name = str(times.index[0])
    is_launching = "::" in name or name.startswith(NOTHING) or is_launch(name) or is_sync(name)
    return None if is_launching or holds_whole_pass(name) else name


def launching_ns(run: Run, step_needs: StepNeeds) -> pd.Series:
    """What launching a step takes the CPUs, by rank in ns: loading the next batch is apart."""
    steps = run.within(step_needs.table)
    return host_needs_ns(steps.assign(needed_host_ns=steps["needed_host_ns"] - steps["loading_ns"].fillna(0)))
