"""Micro-steps of training, iterations of inference engines, matrix products by phase."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, all_known, percent
from traceanalyzer.analyses.communication.groups import LARGE_BYTES
from traceanalyzer.analyses.grouping import Groups, sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.intervals import Intervals, busy, unions
from traceanalyzer.analyses.operators.flops import OperatorWork
from traceanalyzer.analyses.phases import BACKWARD, OP_PHASES_UNKNOWN, PHASE_NAMES, op_phases
from traceanalyzer.meaning.columns import Adds, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, XLA_PHASES
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    nullable,
    picked,
    rows_named,
    rows_named_so,
    sorted_by,
    table_of,
    whole_of,
)
from traceanalyzer.selection import step_at

# How many micro-steps each optimizer step has, and in how many of them gradients were exchanged.


GRADIENT_COLLECTIVES = ("all_reduce", "reduce_scatter")
"""What data parallelism and sharding exchange gradients with."""

# "backward", "## backward ##", "Backward pass": but not "FSDP::pre_backward" or "backward_prefetch".
_BACKWARD = re.compile(r"[\W_]*backward(?:[\W_]+pass)?[\W_]*", re.IGNORECASE)
_FORWARD = re.compile(r"[\W_]*forward(?:[\W_]+pass)?[\W_]*|DistributedDataParallel\.forward", re.IGNORECASE)


class MicroSteps(Result):
    """One row for each rank and step of the selection."""

    title = "Micro-steps and gradient exchange"
    keys = ("rank", "step")
    is_of_one_run = True
    columns = declared(
        rank=RANK,
        step="Step's number.",
        micro_steps=Column.count(
            "Ranges called backward (else forward) on the host in the step; n/a when nothing marks them.",
            is_compared=False,
        ),
        synchronising_micro_steps=Column.count(
            "Micro-steps after whose beginning, and before the next one's, an all-reduce or "
            "reduce-scatter was launched.",
            is_compared=False,
        ),
        optimizer_steps=Column.count(
            "Updates that the step began: calls of optimizers (Optimizer.step ranges), those with no micro-step "
            "between them as one; n/a when nothing marks them, or micro-steps.",
            is_compared=False,
        ),
        gradient_calls=Column.count("All-reduces and reduce-scatters that the step launched.", is_compared=False),
        gradient_bytes="Sum of their sizes; n/a when one is unknown.",
    )


def micro_steps_per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Count the micro-steps of each step, and those that launched gradient collectives."""
    steps = trace.steps
    if trace.window.steps is not None:
        steps = steps[steps["step"].isin(trace.window.steps)]
    if steps.empty:
        return pd.DataFrame()
    count, begins = len(steps), _begins(trace)
    # PyTorch puts such a range around every optimizer's step.
    is_update = rows_named_so(trace.ranges, lambda name: name.startswith("Optimizer.step"))
    updates = np.sort(array_of(trace.ranges, "start_ns")[is_update])
    # Several optimizers that step with no micro-step between them update one model together.
    updates = updates[np.diff(np.searchsorted(begins, updates), prepend=NONE) != 0]
    starts, ends = array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")
    of_begin, of_update = step_at(starts, ends, begins), step_at(starts, ends, updates)
    gradients, of_call = calls, np.empty(0, dtype=np.int64)
    if len(calls):
        of_call = pd.Index(steps["step"]).get_indexer(whole_of(calls, "step"))
        is_gradient = np.isin(array_of(calls, "collective"), GRADIENT_COLLECTIVES) & (of_call != NONE)
        gradients, of_call = picked(calls, is_gradient), of_call[is_gradient]
    bytes_, unknown, synchronising = np.zeros((3, count), dtype=np.int64)
    if len(gradients):
        bytes_ = sums_at(of_call, whole_of(gradients, "size_bytes", 0), count)
        unknown = np.bincount(of_call, gradients["size_bytes"].isna(), minlength=count)
        launch = trace.launch[array_of(gradients, "gpu_op")]
        begin = np.searchsorted(begins, array_of(trace.api_calls, "start_ns")[launch], side="right") - 1
        is_inside = (launch != NONE) & (begin != NONE) & (np.append(of_begin, NONE)[begin] == of_call)
        synchronising = np.bincount(of_begin[np.unique(begin[is_inside])], minlength=count)
    micro, updated = (np.bincount(of[of != NONE], minlength=count) for of in (of_begin, of_update))
    return table_of(
        {
            "step": array_of(steps, "step"),
            "micro_steps": nullable(micro, micro == 0),
            "synchronising_micro_steps": nullable(synchronising, micro == 0),
            "optimizer_steps": nullable(updated, (micro == 0) | (updated == 0)),
            "gradient_calls": all_known(np.bincount(of_call, minlength=count)),
            "gradient_bytes": nullable(bytes_, unknown > 0),
        }
    )


def _begins(trace: RankTrace) -> np.ndarray:
    """Starts of the ranges that mark micro-steps, in order; nested ones count once."""
    ranges = trace.ranges
    is_own = ~rows_named(ranges, "domain", XLA_PHASES)
    starts, ends = array_of(ranges, "start_ns"), array_of(ranges, "end_ns")
    for pattern in (_BACKWARD, _FORWARD):
        rows = np.flatnonzero(is_own & rows_named_so(ranges, pattern.fullmatch))
        if len(rows):
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ends[rows])[:-1])
            return starts[rows][starts[rows] >= reach]
    return np.empty(0, dtype=np.int64)


# Iterations of an inference engine: prefill and decode apart, with the tokens that their names tell.


PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"

# vLLM: requests of each phase, and in brackets first the tokens that are computed for them (`sq32` or plain `888`).
_VLLM = re.compile(
    r"^execute_(?:\d+_)?context_(?P<prefills>\d+)\((?:sq)?(?P<prefill_tokens>\d+)[^)]*\)"
    r"(?:_generation_(?P<decodes>\d+)\((?:sq)?(?P<decode_tokens>\d+))?"
)

# vLLM until early 2026: a new request is in prefill; one that runs already may be, too, where prompts come in pieces.
_VLLM_NEW = re.compile(r"^execute_new_(?P<prefills>\d+)_cached_(?P<running>\d+)")

# SGLang: the batch's requests; tokens where they are not one a request.
_SGLANG = re.compile(r"^step\[[A-Z_]+ bs=(?P<requests>\d+)(?: toks=(?P<tokens>\d+))?")

# TensorRT-LLM: requests of each phase, newer ones the tokens of those in prefill; drafts add tokens to decoding.
_TENSORRT = re.compile(
    r"^\[Executor\] _forward_step\b[^:]*: (?P<prefills>\d+) ctx reqs,(?: (?P<prefill_tokens>\d+) ctx tokens,)? "
    r"(?P<decodes>\d+) gen reqs"
)

_COUNTED = (_VLLM, _TENSORRT, _VLLM_NEW)

_NAMED = (
    (DECODE, re.compile(r"decode", re.IGNORECASE)),
    (PREFILL, re.compile(r"extend|prefill", re.IGNORECASE)),
    (MIXED, re.compile(r"mixed", re.IGNORECASE)),
)

_INTEGERS = ("window_ns", "idle_ns", "between_ns", "operations", "step")

_COUNTS = ("prefills", "prefill_tokens", "decodes", "decode_tokens")


class Iterations(Result):
    """One row for each rank and iteration of an inference engine (vLLM's, SGLang's and TensorRT-LLM's annotations)."""

    title = "Inference iterations"
    keys = ("rank", "step")
    columns = declared(
        rank=RANK,
        step="The iteration's place in the capture.",
        name="Its annotation.",
        phase="prefill, decode, or mixed: requests of both in one batch.",
        prefills=Column.count("Requests in prefill; absent where the annotation does not say."),
        prefill_tokens=Column.count("Tokens computed for them."),
        decodes=Column.count("Requests in decode."),
        decode_tokens=Column.count("Tokens computed for them."),
        window_ns="Window of the iteration, as of a step.",
        idle_ns="Time of the window in which nothing ran on the GPU.",
        between_ns=Column.time(
            "Part of that in which its host was in no iteration's annotation: it waits for requests, schedules them, "
            "or hands out results.",
            is_news_when_zero=True,
            is_secondary=True,
        ),
        operations="GPU operations that were launched in it.",
        graph_operations=Column.count(
            "Those of them that a graph replayed; absent where of most operations no launch is known.",
            is_compared=False,
            is_secondary=True,
        ),
        is_complete=Column.flag("As of a step: counts in means.", is_secondary=True),
        idle_pct="100 · idle / window.",
        tokens_per_s="Prefill and decode tokens / window.",
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        tokens = table["prefill_tokens"] + table["decode_tokens"]
        return table.assign(
            idle_pct=percent(table["idle_ns"], table["window_ns"]),
            tokens_per_s=(tokens * 1e9 / table["window_ns"]).astype("Float64"),
        )


def iterations_per_rank(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    """The rank's steps that are iterations, with what their names tell and the breakdown's idle time."""
    if steps.empty:
        return pd.DataFrame()
    annotations = {name: known for name in steps["name"].unique() if (known := parse_annotation(str(name))) is not None}
    if not annotations:
        return pd.DataFrame()
    held = steps[steps["step"].notna() & steps["start_ns"].notna() & steps["name"].isin(list(annotations))]
    held = held.reset_index(drop=True)
    if held.empty:
        return pd.DataFrame()
    facts = pd.DataFrame([annotations[name] for name in held["name"]])
    table = held[["step", "name", "window_ns", "idle_ns", "operations", "is_complete"]].join(facts)
    table["between_ns"] = _between_ns(trace, held)
    table["graph_operations"] = _graph_operations(trace, held["step"].to_numpy(dtype=np.int64))
    return table.astype(dict.fromkeys((*_COUNTS, *_INTEGERS), "Int64"))


def parse_annotation(name: str) -> dict[str, object] | None:
    """Phase, requests and tokens that an annotation tells; `None` for one of no inference engine."""
    match = next((match for pattern in _COUNTED if (match := pattern.match(name))), None)
    if match:
        return _requests(**match.groupdict())
    phase = next((phase for phase, pattern in _NAMED if pattern.search(name)), None)
    match = _SGLANG.match(name)
    if match is None or phase not in (PREFILL, DECODE):
        return {"phase": phase, **dict.fromkeys(_COUNTS)} if phase else None
    if phase == PREFILL:
        return _requests(*match.groups())
    # A decode computes one token a request unless it says otherwise.
    return _requests("0", decodes=match["requests"], decode_tokens=match["tokens"] or match["requests"])


def _requests(
    prefills: str, prefill_tokens: str | None = None, decodes: str | None = None, decode_tokens: str | None = None,
    running: str | None = None,
) -> dict[str, object] | None:  # fmt: skip
    counts = int(prefills), int(decodes or 0)
    if running is not None and (int(running) or not counts[0]):
        return None
    tokens = [
        int(token_sum) if token_sum else None if count else 0
        for count, token_sum in zip(counts, (prefill_tokens, decode_tokens), strict=True)
    ]
    phase = MIXED if all(counts) else PREFILL if counts[0] else DECODE
    return {"phase": phase, **dict(zip(_COUNTS, (counts[0], tokens[0], counts[1], tokens[1]), strict=True))}


def _between_ns(trace: RankTrace, held: pd.DataFrame) -> np.ndarray:
    """Of each iteration's window: nothing runs on the GPU, and its host is in no iteration."""
    steps = trace.steps
    starts = held["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + held["window_ns"].to_numpy(dtype=np.int64)
    inside = Intervals.of(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"))
    return (Intervals.of(starts, ends) - busy(trace) - inside).covered_ns(starts, ends)


def _graph_operations(trace: RankTrace, numbers: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """By step number: operations with a graph's node, or launched by a call that launches a graph.

    Of operations most of which have no launch nobody knows what an iteration launched.
    """
    launch, step = trace.launch, trace.op_step
    is_launch = np.append(rows_named_so(trace.api_calls, host_names.is_graph_launch), values=False)
    is_graph = ~trace.gpu_ops["graph_node"].array.isna() | is_launch[launch]
    if 2 * np.count_nonzero(launch != NONE) < len(launch):
        return pd.array([pd.NA] * len(numbers), dtype="Int64")
    count = np.bincount(step[is_graph & (step != NONE)], minlength=len(trace.steps))
    of_number = pd.Series(count, index=array_of(trace.steps, "step"))
    return pd.array(of_number.reindex(numbers).to_numpy(), dtype="Int64")


# Matrix products by phase, sizes and element type: how long each takes, alone and while the GPU communicates.


class MatrixProducts(Result):
    """One row for each rank, phase, product and element type; longest first."""

    title = "Matrix products"
    keys = ("rank", "phase", "product", "dtype")
    derived = {"mean_ns": "gpu_ns / calls"}
    columns = declared(
        rank=RANK,
        phase="Phase of training that launched it.",
        product="Sizes of its factors: `[8192, 1024] × [1024, 4096]`; batched ones begin with the batch.",
        dtype=Column.text("Element type of the factors.", written=Written.DTYPE),
        calls="Calls of operators that launched GPU operations.",
        gpu_ns="Sum of their kernels' durations.",
        calls_beside_comm=Column.count(
            "Those beside communication: it runs for at least half of their kernels' time.", is_aside=True
        ),
        gpu_beside_comm_ns="Sum of these calls' kernels.",
        mean_ns=Column.spent("GPU time / calls.", adds=Adds.DERIVED),
    )


def matrix_products_per_rank(trace: RankTrace, work: OperatorWork, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Add up equal products; none where the capture has no operators' shapes."""
    is_product = rows_named(work.calls, "family", "gemm")
    rows = np.flatnonzero(trace.counted & np.append(is_product, False)[work.of_op])
    if not len(rows):
        return pd.DataFrame()
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns", rows=rows)
    calls = Groups.of_numbers(work.of_op[rows])
    gpu_ns = calls.sums(ends - starts)
    is_beside = 2 * calls.sums(unions(trace)["comm"].covered_ns(starts, ends)) >= gpu_ns
    keys = {name: work.calls[name].array[work.of_op[rows][calls.first]] for name in ("product", "dtype")}
    keys["phase"] = PHASE_NAMES[phase_of_op[rows][calls.first]]
    groups = Groups.of(keys, ["phase", "product", "dtype"], with_absent=True)
    sums = {
        "gpu_ns": groups.sums(gpu_ns),
        "calls_beside_comm": groups.sums(is_beside),
        "gpu_beside_comm_ns": groups.sums(np.where(is_beside, gpu_ns, 0)),
    }
    return sorted_by(groups.table(calls=groups.counts(), **sums), "gpu_ns")


# Gradient reductions that follow the backward pass, and belong to it.


def phases_with_reductions(trace: RankTrace, calls: pd.DataFrame) -> np.ndarray:
    """For each GPU operation the position of its phase in `NAMES`: as `op_phases`, and gradients' reductions.

    All-reduces and reduce-scatters that nothing attributes are backward's where the last operation of known phase that
    was launched before them is backward's, and they carry at least 64 KiB after that one backward pass: gradients that
    are exchanged once they are all there.
    """
    phase = op_phases(trace)
    if not len(calls):
        return phase
    own = np.flatnonzero(np.isin(array_of(calls, "collective"), GRADIENT_COLLECTIVES))
    rows = array_of(calls, "gpu_op")[own]
    launch = trace.launch
    is_open = (phase[rows] == OP_PHASES_UNKNOWN) & (launch[rows] != NONE)
    own, rows = own[is_open], rows[is_open]
    known = np.flatnonzero((phase != OP_PHASES_UNKNOWN) & (launch != NONE))
    known = known[np.argsort(launch[known], kind="stable")]
    before = np.searchsorted(launch[known], launch[rows]) - 1
    is_after = before >= 0
    is_after[is_after] = phase[known][before[is_after]] == BACKWARD
    sizes = whole_of(calls, "size_bytes", LARGE_BYTES)[own[is_after]]
    of_pass = _passes(phase[known], before[is_after])
    carried = sums_at(of_pass, sizes, int(of_pass.max(initial=NONE)) + 1)[of_pass]
    found = phase.copy()
    found[rows[is_after][carried >= LARGE_BYTES]] = BACKWARD
    return found


def _passes(phases: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Number of the backward pass at each place among the operations of known phase."""
    is_first = (phases == BACKWARD) & (np.append(NONE, phases[:-1]) != BACKWARD)
    return np.cumsum(is_first)[places]
