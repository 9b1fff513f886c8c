"""Iterations of an inference engine: prefill and decode apart, with the tokens that their names tell."""

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.idle_causes import held_up
from traceanalyzer.analyses.names import IterationsColumn
from traceanalyzer.analyses.time.intervals import Intervals, busy
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named_so
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"

# vLLM: requests of each phase, and in brackets first the tokens that are computed for them (`sq32` or plain `888`).
_VLLM = re.compile(
    r"^execute_(?:\d+_)?context_(?P<prefills>\d+)\((?:sq)?(?P<prefill_tokens>\d+)[^)]*\)"
    r"(?:_generation_(?P<decodes>\d+)\((?:sq)?(?P<decode_tokens>\d+))?"
)

# vLLM until early 2026: a new request is in prefill; one that runs already may be, too, where prompts come in pieces.
_VLLM_NEW = re.compile(r"^execute_new_(?P<prefills>\d+)_cached_(?P<running>\d+)")

# SGLang: the batch's requests; tokens where they are not one a request.
_SGLANG = re.compile(r"^step\[(?P<mode>[A-Z_]+) bs=(?P<requests>\d+)(?: toks=(?P<tokens>\d+))?")

# TensorRT-LLM: requests of each phase, newer ones the tokens of those in prefill; drafts add tokens to decoding.
_TENSORRT = re.compile(
    r"^\[Executor\] _forward_step\b[^:]*: (?P<prefills>\d+) ctx reqs,(?: (?P<prefill_tokens>\d+) ctx tokens,)? "
    r"(?P<decodes>\d+) gen reqs"
)

_NAMED = (
    (DECODE, re.compile(r"decode", re.IGNORECASE)),
    (PREFILL, re.compile(r"extend|prefill", re.IGNORECASE)),
    (MIXED, re.compile(r"mixed", re.IGNORECASE)),
)

_INTEGERS = ("window_ns", "idle_ns", "between_ns", "blocked_ns", "operations", "step")

_COUNTS = ("prefills", "prefill_tokens", "decodes", "decode_tokens")


class Iterations(Result[IterationsColumn]):
    """One row for each rank and iteration of an inference engine (vLLM's, SGLang's and TensorRT-LLM's annotations)."""

    title: ClassVar[str] = "Inference iterations"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("The iteration's place in the capture."),
        "name": Column.text("Its annotation.", written=Written.KERNEL),
        "phase": Column.text("prefill, decode, or mixed: requests of both in one batch."),
        "prefills": Column.count("Requests in prefill; absent where the annotation does not say."),
        "prefill_tokens": Column.count("Tokens computed for them."),
        "decodes": Column.count("Requests in decode."),
        "decode_tokens": Column.count("Tokens computed for them."),
        "window_ns": Column.time(
            "Window of the iteration, as of a step.",
            better=Better.LESS,
        ),
        "idle_ns": Column.time(
            "Time of the window in which nothing ran on the GPU.", is_news_when_zero=True, better=Better.LESS
        ),
        "between_ns": Column.time(
            "Part of that in which its host was in no iteration's annotation: it waits for requests, schedules them, "
            "or hands out results.",
            is_news_when_zero=True,
            is_secondary=True,
        ),
        "blocked_ns": Column.time(
            "Part of the idle time in which a call blocked its host: it waited for no launch.",
            is_news_when_zero=True,
            is_secondary=True,
        ),
        "operations": Column.count("GPU operations that were launched in it."),
        "graph_operations": Column.count(
            "Those of them that a graph replayed; absent where of most operations no launch is known.",
            is_compared=False,
            is_secondary=True,
        ),
        "is_complete": Column.flag("As of a step: counts in means.", is_secondary=True),
        "idle_pct": Column.share("100 · idle / window.", better=Better.LESS),
        "tokens_per_s": Column.text("Prefill and decode tokens / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        tokens = table["prefill_tokens"] + table["decode_tokens"]
        return self._with(
            table,
            {
                "idle_pct": percent(table["idle_ns"], table["window_ns"]),
                "tokens_per_s": (tokens * 1e9 / table["window_ns"]).astype("Float64"),
            },
        )


def per_rank(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    """The rank's steps that are iterations, with what their names tell and the breakdown's idle time."""
    if steps.empty:
        return pd.DataFrame()
    told = {name: known for name in steps["name"].unique() if (known := told_by(str(name))) is not None}
    if not told:
        return pd.DataFrame()
    held = steps[steps["step"].notna() & steps["start_ns"].notna()]
    held = held[held["name"].isin(list(told))].reset_index(drop=True)
    if held.empty:
        return pd.DataFrame()
    facts = pd.DataFrame([told[name] for name in held["name"]])
    table = held[["step", "name", "window_ns", "idle_ns", "operations", "is_complete"]].join(facts)
    table["between_ns"], table["blocked_ns"] = _idle_parts(trace, held)
    table["graph_operations"] = _graph_operations(trace, held["step"].to_numpy(dtype=np.int64))
    return typed(table, dict.fromkeys((*_COUNTS, *_INTEGERS), "Int64"))


def across(parts: Mapping[int, pd.DataFrame]) -> Iterations:
    """The ranks' rows under each other."""
    return Iterations(stack(parts, tuple(Iterations.columns)))


def told_by(name: str) -> dict[str, object] | None:
    """Phase, requests and tokens that an annotation tells; `None` for one of no inference engine."""
    match = _VLLM.match(name)
    if match:
        counts = {key: int(match[key] or 0) for key in _COUNTS}
        return {"phase": _phase(counts["prefills"], counts["decodes"]), **counts}
    match = _TENSORRT.match(name)
    if match:
        return _of_tensorrt(match)
    match = _VLLM_NEW.match(name)
    if match:
        return None if int(match["running"]) or not int(match["prefills"]) else _of_new(int(match["prefills"]))
    phase = next((phase for phase, pattern in _NAMED if pattern.search(name)), "")
    return {"phase": phase, **dict.fromkeys(_COUNTS), **_of_sglang(name, phase)} if phase else None


def _phase(prefills: int, decodes: int) -> str:
    return MIXED if prefills and decodes else PREFILL if prefills else DECODE


def _of_new(prefills: int) -> dict[str, object]:
    return {"phase": PREFILL, "prefills": prefills, "prefill_tokens": None, "decodes": 0, "decode_tokens": 0}


def _of_tensorrt(match: re.Match[str]) -> dict[str, object]:
    prefills, decodes = int(match["prefills"]), int(match["decodes"])
    told = int(match["prefill_tokens"]) if match["prefill_tokens"] else None
    return {
        "phase": _phase(prefills, decodes),
        "prefills": prefills,
        "prefill_tokens": told if prefills else 0,
        "decodes": decodes,
        "decode_tokens": None if decodes else 0,
    }


def _of_sglang(name: str, phase: str) -> dict[str, int | None]:
    """Requests and tokens of a batch of one phase; a decode computes one token a request unless it says otherwise."""
    match = _SGLANG.match(name)
    if match is None or phase not in (PREFILL, DECODE):
        return {}
    requests = int(match["requests"])
    tokens = int(match["tokens"]) if match["tokens"] else requests if phase == DECODE else None
    own, other = ("prefill", "decode") if phase == PREFILL else ("decode", "prefill")
    return {f"{own}s": requests, f"{own}_tokens": tokens, f"{other}s": 0, f"{other}_tokens": 0}


def _idle_parts(trace: RankTrace, held: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of each iteration's window: nothing runs on the GPU; its host is in no iteration, or in a call that blocks."""
    steps = trace.steps
    starts = held["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + held["window_ns"].to_numpy(dtype=np.int64)
    inside = Intervals.of(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"))
    idle = Intervals.of(starts, ends) - busy(trace)
    return (idle - inside).covered_ns(starts, ends), (idle & held_up(trace)).covered_ns(starts, ends)


def _graph_operations(trace: RankTrace, numbers: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """By step number: operations with a graph's node, or launched by a call that launches a graph.

    Of operations most of which have no launch nobody knows what an iteration launched.
    """
    launch, step = array_of(trace.gpu_ops, "launch"), trace.op_step
    is_launch = np.append(rows_named_so(trace.api_calls, host_names.is_graph_launch), values=False)
    is_graph = ~column_of(trace.gpu_ops, "graph_node").isna() | is_launch[launch]
    if 2 * np.count_nonzero(launch != NONE) < len(launch):
        return pd.array([pd.NA] * len(numbers), dtype="Int64")
    count = np.bincount(step[is_graph & (step != NONE)], minlength=len(trace.steps))
    of_number = pd.Series(count, index=array_of(trace.steps, "step"))
    return pd.array(of_number.reindex(numbers).to_numpy(), dtype="Int64")
