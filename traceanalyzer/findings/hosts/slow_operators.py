"""Rules about operators that take the CPU long by themselves, beside the calls that launch their kernels."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.sync_calls import SyncCalls
from traceanalyzer.analyses.operators.operator_launches import OperatorLaunches
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares
from traceanalyzer.findings.hosts.host_words import HOST_PCT
from traceanalyzer.findings.hosts.host_work import CPU_WORK_PCT
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.worst import worst_rank
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import only

CALL_NS = 1_000_000
"""The CPU's own time in a call from which on it is not what launching takes: that is some 10 µs."""

SLOW_OPERATORS_PCT = 10.0
"""Of a step, by all such operators together."""

_MOST = 2

_NO_OPERATOR = ("autograd::", "torch::autograd::", "c10d::")
"""Autograd's own work and calls of communication: Python runs in them, and waits."""

_SUMS = ["calls", "host_self_ns", "gpu_total_ns"]

_OF_SHAPES = (
    "The shapes of {}'s inputs change from call to call: pad them to few lengths or bucket them, so that what was made "
    "for one serves the next; or choose another implementation (for attention another backend: "
    "torch.nn.attention.sdpa_kernel)."
)

_OTHER = (
    "Choose another implementation of {} (for attention another backend: torch.nn.attention.sdpa_kernel), or do it on "
    "the GPU, more rarely, or in another thread."
)


def slow_operators(
    headline: Headline, steps: Steps, idle: Idle, host_work: HostWork, operators: Operators,
    operator_launches: OperatorLaunches, operator_shapes: OperatorShapes, sync_calls: SyncCalls, episodes: Episodes,
    places: Places, ranks: Ranks, *, slow_call_ns: int = CALL_NS, slow_operators_pct: float = SLOW_OPERATORS_PCT,
    host_idle_pct: float = HOST_PCT, cpu_work_pct: float = CPU_WORK_PCT,
) -> list[Finding]:  # fmt: skip
    """Where GPUs wait for hosts: operators that take a CPU 1 ms of its own a call, 10 % of a step together.

    A library makes a plan, compiles, or picks an algorithm there, or the CPU computes: the time is in none of the
    operators that it calls, and in no call of CUDA's; nor does it launch many kernels in one call. What starts no GPU
    work at all has a rule of its own (`cpu_work`).
    """
    worst = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if worst is None or not len(operators):
        return []
    rank, idle_ns, _, basis = worst
    table = _own(operators, operator_launches, sync_calls)
    table = table[(table["own_ns"] >= slow_call_ns * table["most"]) & ~_is_said(table, host_work, basis, cpu_work_pct)]
    table["per_step_ns"] = table["own_ns"] / table["rank"].map(steps_of_operators(steps, basis))
    basis = basis_of_operators(steps, basis, ranks)
    shares = host_shares(table.groupby("rank")["per_step_ns"].sum(), rank, basis, slow_operators_pct)
    if shares is None:
        return []
    own = table[table["rank"] == rank].sort_values("per_step_ns", ascending=False)
    total_ns = float(own["per_step_ns"].sum())
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"Rank {rank}'s CPU is busy inside {_listed(own)} without launching: {time_text(total_ns)} "
            f"{basis.a_step}, {shares.pct:.0f} % {basis.of_a_step}{shares.also(places)}.",
            evidence=plain(own[["rank", "operator", "calls", "host_self_ns", "own_ns"]]),
            recommendation=_advice(operator_shapes, own.iloc[0]),
            caveat="A profiler slows the host, but hardly inside a single operator.",
            gain_ns=round(min(total_ns, idle_ns)),
            is_of_hosts=True,
            named=shares.named(rank),
            table="operators",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _own(operators: Operators, operator_launches: OperatorLaunches, sync_calls: SyncCalls) -> pd.DataFrame:
    """Operators of each rank with `own_ns`: their CPU time less inner operators and calls that launch or wait.

    Of calls that wait one more than is counted, as long as the longest.
    `most` is how often an operator was called, or launched something itself, if that is more.
    """
    keys = ["rank", "operator"]
    table = operators.table.groupby(keys, as_index=False, observed=True)[_SUMS].sum(min_count=1)
    table = table.dropna().astype(dict.fromkeys(_SUMS, "int64")).query("calls > 0")
    table = table[table["operator"].map(_is_of_library).astype(bool)]
    inside = [only(operator_launches.table, [*keys, "launch_ns"]).rename(columns={"launch_ns": "call_ns"})]
    if len(sync_calls):
        blocked = sync_calls.table[[*keys, "host_ns"]].rename(columns={"host_ns": "call_ns"})
        # The call that waits for the window's last operation returns when it has ended, and is not counted there.
        inside += [blocked, blocked.groupby(keys, as_index=False)["call_ns"].max()]
    calls = pd.concat(inside).groupby(keys)["call_ns"].sum().astype("int64")
    at = pd.MultiIndex.from_frame(table[keys])
    table["own_ns"] = table["host_self_ns"].to_numpy() - calls.reindex(at, fill_value=0).to_numpy()
    launches = operator_launches.table.set_index(keys)["launches"].reindex(at, fill_value=0)
    table["most"] = np.maximum(table["calls"].to_numpy(), launches.to_numpy(dtype=np.int64))
    return table


def _is_of_library(name: str) -> bool:
    """Whether it is an operator (`aten::mm`, `mylib::op`), and no function of Python that autograd calls."""
    return "::" in name and not name.startswith(_NO_OPERATOR)


def _is_said(table: pd.DataFrame, host_work: HostWork, basis: Basis, cpu_work_pct: float) -> np.ndarray:
    """Operators without GPU work, of ranks of which `cpu_work` speaks: these may lie in what it names."""
    if not len(host_work):
        return np.zeros(len(table), dtype=bool)
    own = host_work.to_frame()
    is_long = (basis.shares_of_rows(own, "idle_per_step_ns") >= cpu_work_pct).fillna(value=False)
    told = own["rank"][is_long & (own["launches"] == 0)]
    is_said: np.ndarray = (table["rank"].isin(told) & (table["gpu_total_ns"] == 0)).to_numpy()
    return is_said


def _listed(own: pd.DataFrame) -> str:
    """`aten::_cudnn_attention_backward (8.95 ms a call) and aten::_cudnn_attention_forward (5.85 ms a call)`."""
    said = [
        f"{short_name(row['operator'])} ({time_text(row['own_ns'] / row['calls'])} a call)"
        for row in own.head(_MOST).to_dict("records")
    ]
    more = len(own) - len(said)
    return " and ".join(said) if not more else f"{', '.join(said)} and {more} more"


def _advice(operator_shapes: OperatorShapes, row: pd.Series) -> str:
    """What to do about the operator that takes longest, as far as shapes are recorded."""
    table = operator_shapes.table
    own = table[(table["rank"] == row["rank"]) & (table["operator"] == row["operator"])]
    return (_OF_SHAPES if len(own["shapes"].dropna().unique()) > 1 else _OTHER).format(short_name(row["operator"]))
