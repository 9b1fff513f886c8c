"""Kernels of unknown kind: which of compute may be communication."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.calls import comm_operators
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host.host_names import is_cpu_collective
from traceanalyzer.analyses.integrity.checks import BY_KIND, MANY, SOME, Defect
from traceanalyzer.kinds.kernels import function_path
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import HIGH, LOW, MEDIUM, Severity
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.model.tables import array_of, lengths_of, rows_named, rows_named_so

UNKNOWN, NOWHERE, NAMELESS = "unknown_communication", "no_communication", "kernels_without_name"
_NONE_AT_ALL = "without_communication"
WITHOUT_MATCH = "kind_without_match"

OF_SEVERAL_RANKS = (NOWHERE, _NONE_AT_ALL)
"""Checks that say nothing of a rank that is alone."""

UNKNOWN_KERNELS = (UNKNOWN, NOWHERE, NAMELESS)
"""Checks that leave it open what of compute is communication: with them nothing can be called well."""

_MOST_NAMED = 5

_OF_OPERATORS = re.compile(
    r"^(?:at|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn|pytorch_flash|flash)::"
    r"|^(?:nvjet|triton_|Cijk_|sm\d+_xmma|cudnn_generated|implicit_convolve|(?:maxwell|volta|turing|ampere)_)"
)
"""Kernels of libraries that only compute, whoever launches them."""


def unknown_communication(trace: RankTrace) -> Iterator[Defect]:
    """Compute kernels whose own name, or whose operator's, speaks of communication; the user's rules come first."""
    ops = trace.gpu_ops
    is_kernel = rows_named(ops, "kind", "compute") & rows_named(ops, "activity", "kernel")
    by_name = _by_name(ops, is_kernel)
    of_operators = _of_operators(trace, is_kernel)
    speaks = [kinds.speaks_of_communication(name) or name in of_operators for name in by_name.index]
    found = by_name[[one and not _is_ruled(trace, name) for one, name in zip(speaks, by_name.index, strict=True)]]
    found = found[found > 0]
    if len(found):
        share = found.sum() / by_name.sum()
        names = ops["name"].array
        alone = np.setdiff1d(*(array_of(ops, "stream")[is_kernel & is_own] for is_own in _apart(names, found)))
        on = f" No other kernel runs on stream {', '.join(map(str, alone[:_MOST_NAMED]))}." if len(alone) else ""
        text = (
            "Kernels that no rule knows, whose names or operators' names speak of communication: "
            f"{_largest(found)}. They count as compute ({100 * share:.1f}% of its kernel time).{on} If they "
            f"communicate, add {_option(found)}."
        )
        yield Defect(UNKNOWN, len(found), len(by_name), text, BY_KIND, _severity(share))


def _is_ruled(trace: RankTrace, name: str) -> bool:
    return any(rule.search(name) for _, rule in trace.meta.kind_rules.extra)


def _apart(names: Any, found: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the operations of these names, and of all others."""
    is_found: np.ndarray = np.append(names.categories.isin(found.index), False)[names.codes]
    return is_found, ~is_found


def _severity(share: float) -> Severity:
    """How grave it is that so much of kernel time is of unknown kernels."""
    return HIGH if share >= MANY else MEDIUM if share >= SOME else LOW


def kernels_without_name(trace: RankTrace) -> Iterator[Defect]:
    """Kernels whose names the file lacks: they count as compute, and may be anything."""
    is_kernel = rows_named(trace.gpu_ops, "activity", "kernel")
    by_name = _by_name(trace.gpu_ops, is_kernel)
    count, share = int((is_kernel & rows_named(trace.gpu_ops, "name", UNNAMED)).sum()), 0.0
    if by_name.get(UNNAMED, 0):
        share = by_name[UNNAMED] / by_name.sum()
    text = (
        f"Kernels without a name in the file: {count:,} ({100 * share:.1f}% of kernel time). They count as compute; "
        "any may be communication. Record or export again."
    )
    yield Defect(NAMELESS, count if share else 0, None, text, BY_KIND, _severity(share))


def no_communication(trace: RankTrace) -> Iterator[Defect]:
    """A rank that runs nothing which is known as communication, on its GPU or its CPU; of a job of one that is well."""
    ops = trace.gpu_ops
    is_compute = rows_named(ops, "kind", "compute")
    communicates = rows_named(ops, "kind", "comm").any() or rows_named_so(trace.ranges, is_cpu_collective).any()
    by_name = _by_name(ops, is_compute)
    if communicates or by_name.empty or any(kinds.is_fused(name) for name in by_name.index):
        return
    others = by_name[[not _OF_OPERATORS.search(function_path(name)) for name in by_name.index]]
    if len(others):
        text = (
            "A job of several ranks, and nothing in the capture is known as communication: it has none here, or no "
            "rule knows its kernels, which count as compute. Kernels that are of no library which only computes, the "
            f"longest first: {_largest(others)}. Name those that communicate, such as {_option(others[:1])}."
        )
        yield Defect(NOWHERE, 1, None, text, BY_KIND, MEDIUM)
    elif trace.meta.world_size is not None:
        text = (
            "A job of several ranks, and no communication in the capture: all kernels are of libraries that only "
            "compute. The steps exchange nothing (gradient accumulation, separate work), or that was not recorded."
        )
        yield Defect(_NONE_AT_ALL, 1, None, text, (), LOW)


def fused_kernels(trace: RankTrace) -> Iterator[Defect]:
    """Kernels that compute and communicate at once: compute, overlap and exposed communication leave theirs open."""
    by_name = _by_name(trace.gpu_ops, rows_named(trace.gpu_ops, "kind", "compute"))
    found = by_name[[kinds.is_fused(name) for name in by_name.index]]
    found = found[found > 0]
    share = found.sum() / max(by_name.sum(), 1)
    text = (
        f"Kernels that compute and communicate at once take {100 * share:.1f}% of compute kernel time: "
        f"{_largest(found)}. They count as compute; how much is communication, and how much of it hidden, is unknown."
    )
    yield Defect("fused_kernels", len(found), len(by_name), text, BY_KIND, MEDIUM if share >= SOME else LOW)


def kinds_without_match(trace: RankTrace) -> Iterator[Defect]:
    """The user's rules that no operation's name fits."""
    rules = trace.meta.kind_rules.extra
    names = [str(name) for name in trace.gpu_ops["name"].unique()] if rules else []
    for kind, rule in rules:
        if not any(rule.search(name) for name in names):
            text = f"--kernel-kind '{kind}={rule.pattern}' fits no kernel or copy in the capture."
            yield Defect(WITHOUT_MATCH, 1, None, text, (), MEDIUM)


def _by_name(ops: pd.DataFrame, held: np.ndarray) -> pd.Series:
    """Total time of each distinct name of these operations, longest first."""
    names: Any = ops["name"].array
    total = sums_at(names.codes[held], lengths_of(ops)[held], len(names.categories))
    occurs = np.unique(names.codes[held])
    order = occurs[np.argsort(-total[occurs], kind="stable")]
    return pd.Series(total[order], index=names.categories[order].astype("str"))


def _of_operators(trace: RankTrace, is_kernel: np.ndarray) -> set[str]:
    """Names of compute kernels that communicating operators launch, of which none launches anything that is known.

    Those operators are of libraries, and what PyTorch puts around every collective, of whatever backend.
    """
    ops = trace.gpu_ops
    operator = comm_operators(
        trace, np.arange(len(ops)), lambda name: name == "record_param_comms" or kinds.is_comm_operator(name)
    )
    inside = np.flatnonzero(operator != NONE)
    of_op = trace.host_ops["name"].array.codes[operator[inside]]
    is_known = rows_named(ops, "kind", "comm") | rows_named_so(ops, kinds.is_fused)
    without = inside[is_kernel[inside] & ~np.isin(of_op, of_op[is_known[inside]])]
    names = ops["name"].cat.categories[np.unique(ops["name"].array.codes[without])]
    return {name for name in names if not _OF_OPERATORS.search(function_path(name))}


def _largest(by_name: pd.Series) -> str:
    named = [f"{_short(name)} ({time_text(total)})" for name, total in by_name[:_MOST_NAMED].items()]
    return ", ".join(named) + (f" and {len(by_name) - _MOST_NAMED} more" if len(by_name) > _MOST_NAMED else "")


def _short(name: object) -> str:
    """The function's own name; what is longer than a line is cut."""
    path = "".join(sign for sign in function_path(str(name)) if sign.isprintable())
    return path if len(path) <= 80 else f"{path[:79]}…"


def _option(by_name: pd.Series) -> str:
    """The `--kernel-kind` line for the largest of them."""
    paths = [function_path(str(name)).rsplit("::", 1)[-1][:60] for name in by_name.index[:_MOST_NAMED]]
    pattern = "|".join(dict.fromkeys(map(re.escape, paths)))
    return f"--kernel-kind {shlex.quote(f'comm={pattern}')}"
