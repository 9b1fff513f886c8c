"""Communication that no rule knows: kernels and operators whose names speak of it, and jobs that seem to have none."""

import re
import shlex
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.communication.operator_arguments import comm_operators
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.integrity.integrity_checks import BY_KIND, Defect, have, many
from traceanalyzer.analyses.kernels.kernel_names import category
from traceanalyzer.kinds.function_names import function_path
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.severities import HIGH, LOW, MEDIUM
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.model.tables import array_of, column_of

UNKNOWN = "unknown_communication"
NOWHERE = "no_communication"
_NONE_AT_ALL = "without_communication"

_NAMELESS = "kernels_without_name"

OF_SEVERAL_RANKS = (NOWHERE, _NONE_AT_ALL)
"""Checks that say nothing of a rank that is alone."""

UNKNOWN_KERNELS = (UNKNOWN, NOWHERE, _NAMELESS)
"""Checks that leave it open what of compute is communication: with them nothing can be called well."""

_GRAVE_PCT, _SOME_PCT = 10.0, 1.0
"""Of kernel time, from which unknown kernels are high, and medium."""

_MOST_NAMED = 5

_OF_OPERATORS = re.compile(
    r"^(?:at|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn|pytorch_flash|flash)::"
    r"|^(?:nvjet|triton_|Cijk_|sm\d+_xmma|cudnn_generated|implicit_convolve|(?:maxwell|volta|turing|ampere)_)"
)
"""Kernels of libraries that only compute, whoever launches them."""

_OF_ANY_BACKEND = "record_param_comms"


def unknown_communication(trace: RankTrace) -> list[Defect]:
    """Compute kernels whose own name, or whose operator's, speaks of communication; the user's rules come first."""
    ops = trace.gpu_ops
    is_kernel = is_any(ops["kind"], "compute") & is_any(ops["activity"], "kernel")
    by_name = _by_name(ops, is_kernel)
    speaking = np.array([_speaks(trace, name) for name in by_name.index.tolist()], dtype=bool)
    by_operator = _of_operators(trace, is_kernel)
    found = _with_time(by_name[speaking | by_name.index.isin(by_operator)])
    if found.empty:
        return []
    share = 100.0 * float(found.sum()) / float(by_name.sum())
    said = _one_said if len(found) == 1 else _many_said
    who, whose, they = said(len(found), by_name=bool(speaking.any()))
    text = (
        f"{who} as compute ({share:.1f} % of its kernel time), though {whose} of communication: {_largest(found)}."
        f"{_streams(ops[is_kernel], found)} If {they}, say {_option(found)}."
    )
    severity = HIGH if share >= _GRAVE_PCT else MEDIUM if share >= _SOME_PCT else LOW
    return [Defect(UNKNOWN, severity, len(found), len(by_name), text, BY_KIND)]


def kernels_without_name(trace: RankTrace) -> list[Defect]:
    """Kernels whose names the file lacks: they count as compute, and may be anything."""
    by_name = _by_name(trace.gpu_ops, is_any(trace.gpu_ops["activity"], "kernel"))
    if not by_name.get(UNNAMED, 0):
        return []
    count = int((is_any(trace.gpu_ops["activity"], "kernel") & is_any(trace.gpu_ops["name"], UNNAMED)).sum())
    share = 100.0 * float(by_name[UNNAMED]) / float(by_name.sum())
    text = (
        f"{many(count, 'kernel')} ({share:.1f} % of kernel time) {have(count)} no name in the file: counted as "
        "compute, though any may be communication. Record or export again."
    )
    severity = HIGH if share >= _GRAVE_PCT else MEDIUM if share >= _SOME_PCT else LOW
    return [Defect(_NAMELESS, severity, count, None, text, BY_KIND)]


def _one_said(_count: int, *, by_name: bool) -> tuple[str, str, str]:
    whose = "its name speaks" if by_name else "the name of its operator speaks"
    return "1 kernel is known by no rule and counts", whose, "it communicates"


def _many_said(count: int, *, by_name: bool) -> tuple[str, str, str]:
    whose = "their names speak" if by_name else "the names of their operators speak"
    return f"{count} kernels are known by no rule and count", whose, "they communicate"


def no_communication(trace: RankTrace) -> list[Defect]:
    """A rank that runs nothing which is known as communication, on its GPU or its CPU; of a job of one that is well."""
    ops = trace.gpu_ops
    if is_any(ops["kind"], "comm").any() or not is_any(ops["kind"], "compute").any():
        return []
    if host_names.matches(trace.ranges["name"], host_names.is_cpu_collective).any():
        return []
    by_name = _by_name(ops, is_any(ops["kind"], "compute"))
    fused = [name for name in by_name.index if kinds.is_fused(name)]
    if fused:
        return []
    others = by_name[[not _OF_OPERATORS.search(function_path(name)) for name in by_name.index]]
    if others.empty and trace.meta.world_size is None:
        return []
    if others.empty:
        text = (
            "A job of several ranks, and no communication in the capture: all of its kernels are of libraries that "
            "only compute. Its steps exchange nothing (gradients accumulated without synchronising, its own part of "
            "the work), or that was not recorded."
        )
        return [Defect(_NONE_AT_ALL, LOW, 1, None, text, ())]
    others = _likeliest_first(trace, others)
    text = (
        f"A job of several ranks, but nothing in the capture is known as communication: it has none here, or its "
        f"kernels have names that no rule knows and count as compute. Of those that no library of computing kernels "
        f"has, the likeliest first: {_largest(others)}. Name those that communicate, such as {_option(others[:1])}."
    )
    return [Defect(NOWHERE, MEDIUM, 1, None, text, BY_KIND)]


def _likeliest_first(trace: RankTrace, by_name: pd.Series) -> pd.Series:
    """Kernels that speak of communication, that share no stream with matrix products, whose names tell no computing."""
    ops = trace.gpu_ops
    by_operator = _of_operators(trace, is_any(ops["kind"], "compute"))
    is_silent = np.array([not _speaks(trace, name) and name not in by_operator for name in by_name.index], dtype=bool)
    kernels = ops[(ops["kind"] == "compute").to_numpy()]
    names = kernels["name"].astype("str")
    computes = names.map({name: category(name, "compute", None) != "other" for name in names.unique()})
    beside = kernels["stream"].isin(kernels.loc[computes.to_numpy(dtype=bool), "stream"].unique())
    is_beside = beside.groupby(names).any().reindex(by_name.index)
    told = np.array([category(str(name), "compute", None) != "other" for name in by_name.index.tolist()], dtype=bool)
    order = np.lexsort((-by_name.to_numpy(), told, is_beside.to_numpy(dtype=bool), is_silent))
    return by_name.iloc[order]


def fused_kernels(trace: RankTrace) -> list[Defect]:
    """Kernels that compute and communicate at once: compute, overlap and exposed communication leave theirs open."""
    ops = trace.gpu_ops
    by_name = _by_name(ops, is_any(ops["kind"], "compute"))
    found = _with_time(
        by_name[[kinds.is_fused(str(name)) for name in by_name.index.tolist()]] if len(by_name) else by_name
    )
    if found.empty:
        return []
    share = 100.0 * float(found.sum()) / float(by_name.sum())
    text = (
        f"{share:.1f} % of compute kernel time is in kernels that compute and communicate at once: {_largest(found)}. "
        "They count as compute; how much of it is communication, and how much is hidden, cannot be told."
    )
    return [Defect("fused_kernels", MEDIUM if share >= _SOME_PCT else LOW, len(found), len(by_name), text, BY_KIND)]


def kinds_without_match(trace: RankTrace) -> list[Defect]:
    """The user's rules that no operation's name fits."""
    if not trace.meta.kind_rules.extra:
        return []
    names = [str(name) for name in trace.gpu_ops["name"].unique()]
    texts = [
        f"--kind '{kind}={pattern.pattern}' fits no kernel or copy in the capture."
        for kind, pattern in trace.meta.kind_rules.extra
        if not any(pattern.search(name) for name in names)
    ]
    return [Defect(WITHOUT_MATCH, MEDIUM, 1, None, text, ()) for text in texts]


WITHOUT_MATCH = "kind_without_match"


def _by_name(ops: pd.DataFrame, held: np.ndarray) -> pd.Series:
    """Total time of each distinct name of these operations, longest first."""
    names: Any = column_of(ops, "name")
    codes, durations = names.codes[held], (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[held]
    total = sums_at(codes, durations, len(names.categories))
    occurs = np.flatnonzero(np.bincount(codes, minlength=len(total)))
    order = occurs[np.argsort(-total[occurs], kind="stable")]
    return pd.Series(total[order], index=names.categories[order].astype("str"))


def _with_time(by_name: pd.Series) -> pd.Series:
    """Those that take any: the others hide nothing, and have no share where none takes any."""
    return by_name[by_name.to_numpy() > 0]


def _speaks(trace: RankTrace, name: str) -> bool:
    is_ruled = any(pattern.search(name) for _, pattern in trace.meta.kind_rules.extra)
    return not is_ruled and kinds.speaks_of_communication(name)


def _of_operators(trace: RankTrace, is_kernel: np.ndarray) -> set[str]:
    """Names of compute kernels that communicating operators launch, of which none launches anything that is known."""
    ops = trace.gpu_ops
    operator = comm_operators(trace, np.arange(len(ops)), _communicates)
    inside = np.flatnonzero(operator != NONE)
    if not len(inside):
        return set()
    operators, kernels = (column_of(frame, "name").codes for frame in (trace.host_ops, ops))
    of_op = operators[operator[inside]]
    is_known = is_any(ops["kind"], "comm") | host_names.matches(ops["name"], kinds.is_fused)
    launches_known = np.bincount(of_op[is_known[inside]], minlength=int(of_op.max()) + 1) > 0
    without = inside[~launches_known[of_op] & is_kernel[inside]]
    ruled = [pattern for _, pattern in trace.meta.kind_rules.extra]
    found = ops["name"].cat.categories[np.unique(kernels[without])].tolist()
    names = [name for name in found if not _OF_OPERATORS.search(function_path(name))]
    return {name for name in names if not any(rule.search(name) for rule in ruled)}


def _communicates(operator: str) -> bool:
    """Operators of libraries, and what PyTorch puts around every collective, of whatever backend."""
    return operator == _OF_ANY_BACKEND or kinds.is_comm_operator(operator)


def _largest(by_name: pd.Series) -> str:
    named = [f"{_short(name)} ({time_text(total)})" for name, total in by_name[:_MOST_NAMED].items()]
    return ", ".join(named) + (f" and {len(by_name) - _MOST_NAMED} more" if len(by_name) > _MOST_NAMED else "")


def _short(name: object) -> str:
    """The function's own name; what is longer than a line is cut."""
    path = "".join(sign for sign in function_path(str(name)) if sign.isprintable())
    return path if len(path) <= 80 else f"{path[:79]}…"


def _option(by_name: pd.Series) -> str:
    """The `--kind` line for the largest of them."""
    paths = [function_path(str(name)).rsplit("::", 1)[-1][:60] for name in by_name.index[:_MOST_NAMED]]
    pattern = "|".join(dict.fromkeys(map(re.escape, paths)))
    return f"--kind {shlex.quote(f'comm={pattern}')}"


def _streams(kernels: pd.DataFrame, found: pd.Series) -> str:
    """Names streams on which no other kernel runs."""
    is_found = kernels["name"].astype("str").isin(found.index)
    alone = is_found.groupby(kernels["stream"]).all()
    streams = [str(stream) for stream in alone.index[alone.to_numpy(dtype=bool)]]
    if not streams:
        return ""
    who = "It alone runs" if len(found) == 1 else "They alone run"
    return f" {who} on stream{'' if len(streams) == 1 else 's'} {', '.join(streams[:_MOST_NAMED])}."
