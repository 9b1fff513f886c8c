"""Work that the CPU does itself while the GPU has nothing to do, and loops of launches."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import COLLECTIVES, MAIN
from traceanalyzer.analyses.host.api_calls import SyncCalls
from traceanalyzer.analyses.host.cpu_time import HostWork
from traceanalyzer.analyses.host.host_silences import CAPTURE, DYNAMO, XLA, Compilations, HostSilences
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.operators.operators import OperatorLaunches, Operators, OperatorShapes
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.job import awaited
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    CLEAR_GAIN_PCT,
    Basis,
    Title,
    Won,
    basis_of_operators,
    plain,
    severity,
    steps_of_operators,
)
from traceanalyzer.findings.finding import Finding, changed
from traceanalyzer.findings.hosts.launch_bound import HOST_PCT
from traceanalyzer.findings.shares import (
    OF_ALL_STEPS,
    Few,
    HostShares,
    few_steps_of,
    host_shares,
    in_a_step,
    most_gained_ns,
    once,
    won_by_one_turn,
    worst_rank,
)
from traceanalyzer.findings.statistics import also_on, with_others
from traceanalyzer.findings.stragglers.stragglers import lateness_or_hosts
from traceanalyzer.findings.stragglers.wording import WHY_COMPILED
from traceanalyzer.meaning.columns import digits, time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import only, rows_where

# Rules about work that the CPU does itself while the GPU has nothing to do.


CPU_WORK_PCT = 10.0
"""Of a step, for which one range or operator keeps the GPU idle without starting any work on it."""

LAST_SHARE = 0.5
"""A rank for which another one waits in a collective is said if it is in it for less than this of the other's time."""

_OPTIMIZER = (
    "Keep the optimizer's state on the GPU, or use one that is fast on the CPU (foreach or fused=True); with "
    "offloading, update what is ready while backward still runs."
)

_EXCHANGE = (
    "Exchange less and less often (every hundredth step, numbers instead of pickled objects), over the GPUs' group, or "
    "with async_op=True and a wait where the result is used."
)

_WHO_IS_LAST = "Find what the rank that comes last does before it. "

_HOST_WORK_OTHER = (
    "Do it in processes beside this one (workers of a DataLoader, multiprocessing; a thread helps only where it lets "
    "go of Python's lock), or launch the next GPU work before it."
)


def cpu_work(
    headline: Headline,
    steps: Steps,
    host_work: HostWork,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    cpu_work_pct: float = CPU_WORK_PCT,
) -> list[Finding]:
    """The main thread, or a collective on the CPU, starts no GPU work while the GPU idles: over 10 % of a step.

    Not where the job would be no quicker if these hosts took no time at all: another rank is later. Loading of data has
    a rule of its own.
    """
    if not len(headline) or not len(host_work):
        return []
    basis = Basis.of(headline, steps)
    table = host_work.to_frame()
    is_data = table["name"].map(host_names.is_data)
    table = rows_where(
        table,
        ~is_data
        & (table["role"].isin((MAIN, COLLECTIVES)))
        & (table["launches"] == 0)
        & table["idle_per_step_ns"].notna(),
    )
    shares = table.assign(share_pct=basis.shares_of_rows(table, "idle_per_step_ns"))
    held = shares[(shares["share_pct"] >= cpu_work_pct).fillna(value=False)].sort_values("share_pct", ascending=False)
    named_alike = [own for _, own in held.groupby("name", sort=False)]
    # All ranks of a collective are in it, those whose GPUs idle less while it runs, too.
    sharing = [table[table["name"] == own["name"].iloc[0]] if _is_collective(own) else own for own in named_alike]
    changes = [_gone(own) for own in sharing]
    gains = gains_of(replay, changes) if changes else None
    of_each: list[Gain | None] = [*gains] if gains else [None] * len(changes)
    found = [
        _finding(own, _last(own, everyone, replay), gain, basis, _few(own, step_needs, basis), episodes, places)
        for own, everyone, gain in zip(named_alike, sharing, of_each, strict=True)
    ]
    return [each for each in found if each is not None]


def _few(own: pd.DataFrame, step_needs: StepNeeds, basis: Basis) -> Few | None:
    """Few steps that hold most of what the GPU idles for its host, where most of that is this."""
    first = own.iloc[0]
    return few_steps_of(step_needs, basis, int(first["rank"]), HOST.column, float(first["idle_per_step_ns"]))


def _gone(own: pd.DataFrame) -> tuple[Change, ...]:
    """The job without these hosts' time; without what a collective takes once its last host has come."""
    hosts = Change("host", 0.0, frozenset(map(int, own["rank"])))
    return (hosts, Change("collective", 0.0, name=str(own["name"].iloc[0]))) if _is_collective(own) else (hosts,)


def _is_collective(own: pd.DataFrame) -> bool:
    return bool((own["role"] == COLLECTIVES).all())


def _last(own: pd.DataFrame, everyone: pd.DataFrame, replay: Replay) -> tuple[int, float] | None:
    """For whom the rank that a collective costs most waits in it, and that one's time in it, if it is far less."""
    if replay.engine is None or not _is_collective(own):
        return None
    first = own.iloc[0]
    rank = awaited(replay.engine.job.meetings, str(first["name"])).get(int(first["rank"]))
    last_ns = everyone.loc[everyone["rank"] == rank, "host_per_step_ns"].sum()
    if rank is None or last_ns > LAST_SHARE * first["host_per_step_ns"]:
        return None
    return rank, float(last_ns)


def _finding(
    own: pd.DataFrame,
    last: tuple[int, float] | None,
    gain: Gain | None,
    basis: Basis,
    few: Few | None,
    episodes: Episodes,
    places: Places,
) -> Finding | None:
    """One name, on the rank where it costs most; on how many others it does too is said.

    Of a collective to which one rank comes last, that one's lateness is the cause.
    """
    row = own.iloc[0]
    name, rank, idle_ns = str(row["name"]), int(row["rank"]), float(row["idle_per_step_ns"])
    most_ns = most_gained_ns(idle_ns, gain)
    if most_ns is None:
        return None
    alike = own["rank"].unique()
    comes_last = f"; rank {last[0]} comes last ({time_text(last[1])} in it)" if last else ""
    return Finding(
        severity=severity(float(row["share_pct"])),
        title=f"{f'{few.mostly} r' if few else 'R'}ank {rank}'s CPU is in {short_name(name)} for "
        f"{time_text(float(row['host_per_step_ns']))} {'of a mean' if few else 'a'} step and starts no GPU work there: "
        f"the GPU idles {time_text(idle_ns)} of it, {row['share_pct']:.0f} % "
        f"{OF_ALL_STEPS if few else basis.of_a_step}{also_on(alike, basis.window_ns.index, places)}{comes_last}.",
        evidence=plain(own[["rank", "role", "what", "name", "calls", "host_per_step_ns", "idle_per_step_ns"]]),
        recommendation=(_WHO_IS_LAST if last else "") + _host_work_advice(name, str(row["role"])),
        caveat="A profiler slows the host; what GPU work could run meanwhile, the trace does not tell.",
        gain_ns=most_ns,
        steps=few.steps if few else None,
        named=tuple(dict.fromkeys((*with_others(rank, alike, basis.window_ns.index), *(last or ())[:1]))),
        is_of_hosts=True,
        table="host_work",
        is_to_do_first=True,
        part_of=lateness_or_hosts(last[0] if last else rank, episodes),
    )


def _host_work_advice(name: str, role: str) -> str:
    if role == COLLECTIVES:
        return _EXCHANGE
    return _OPTIMIZER if host_names.phase(name) == "optimizer" else _HOST_WORK_OTHER


# Rules about operators that take the CPU long by themselves, beside the calls that launch their kernels.


CALL_NS = 1_000_000
"""The CPU's own time in a call from which on it is not what launching takes: that is some 10 µs."""

SLOW_OPERATORS_PCT = 10.0
"""Of a step, by all such operators together."""

_SLOW_OPERATORS_MOST = 2

_NO_OPERATOR = ("autograd::", "torch::autograd::", "c10d::")
"""Autograd's own work and calls of communication: Python runs in them, and waits."""

_SUMS = ["calls", "host_self_ns", "gpu_total_ns"]

_OF_SHAPES = (
    "The shapes of {}'s inputs change from call to call: pad them to few lengths or bucket them, so that what was made "
    "for one serves the next; or choose another implementation (for attention another backend: "
    "torch.nn.attention.sdpa_kernel)."
)

_SLOW_OPERATORS_OTHER = (
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
            recommendation=_slow_operators_advice(operator_shapes, own.iloc[0]),
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
        for row in own.head(_SLOW_OPERATORS_MOST).to_dict("records")
    ]
    more = len(own) - len(said)
    return " and ".join(said) if not more else f"{', '.join(said)} and {more} more"


def _slow_operators_advice(operator_shapes: OperatorShapes, row: pd.Series) -> str:
    """What to do about the operator that takes longest, as far as shapes are recorded."""
    table = operator_shapes.table
    own = table[(table["rank"] == row["rank"]) & (table["operator"] == row["operator"])]
    return (_OF_SHAPES if len(own["shapes"].dropna().unique()) > 1 else _SLOW_OPERATORS_OTHER).format(
        short_name(row["operator"])
    )


# Rules about what the program does on the CPU that no tool records: long stretches between two calls.


SILENT_PCT = 10.0
"""Of a step, in which the GPU idles while nothing of its host is recorded for long."""

_SILENT_HOSTS_MOST = 0.5
"""Of all of it: the place that holds so much is named."""

_ADVICE = (
    "Look at what the program does {}: Python of its own leaves no mark in a trace, such as collecting garbage, "
    "tokenising, logging, writing files or waiting. Give it a name (torch.profiler.record_function, an NVTX range) or "
    "record with Python's frames (with_stack=True; nsys --python-sampling=true); then do it more rarely, in another "
    "thread, or after the next GPU work is launched."
)


def silent_hosts(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    host_silences: HostSilences,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    silent_pct: float = SILENT_PCT,
    host_idle_pct: float = HOST_PCT,
) -> list[Finding]:
    """Where GPUs wait for hosts: 10 % of a step in stretches of 1 ms and more of which nothing is recorded.

    Launching takes some 10 µs a call, with Python between; what takes longer is something else that the program does
    there. Not where the job would be no quicker if these hosts took no time at all: another rank is later.
    """
    if not len(host_silences) or (worst := worst_rank(headline, steps, idle, HOST.column, host_idle_pct)) is None:
        return []
    rank, _, _, basis = worst
    table = in_a_step(host_silences)
    shares = host_shares(table.groupby("rank")["idle_a_step_ns"].sum(), rank, basis, silent_pct)
    if shares is None:
        return []
    own = table[table["rank"] == rank].sort_values("idle_a_step_ns", ascending=False)
    idle_ns = float(own["idle_a_step_ns"].sum())
    most_ns = shares.most_gained_ns(idle_ns, replay)
    if most_ns is None:
        return []
    few = few_steps_of(step_needs, basis, rank, HOST.column, idle_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"{_said(own, rank, basis, few, shares.pct)}{shares.also(places)}.",
            evidence=plain(own[["rank", "range", "since", "until", "stretches", "host_ns", "idle_ns"]]),
            recommendation=_ADVICE.format(_place(own.iloc[0])),
            caveat="A profiler slows the host, but hardly where it records nothing.",
            gain_ns=most_ns,
            steps=few.steps if few else None,
            is_of_hosts=True,
            named=shares.named(rank),
            table="host_silences",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _said(own: pd.DataFrame, rank: int, basis: Basis, few: Few | None, pct: float) -> str:
    """How long the host is silent, where, and for how much of it its GPU idles: of a mean step, or of all."""
    times, a_step = (basis.per, "in all") if _is_rare(own) else (1, "of a mean step" if few else basis.a_step)
    host, idle = (time_text(times * float(own[f"{what}_a_step_ns"].sum())) for what in ("host", "idle"))
    return (
        f"{f'{few.mostly} n' if few else 'N'}othing is recorded of what rank {rank}'s host does for {host} "
        f"{a_step}, {_where(own)}: its GPU idles {idle} of it, {pct:.0f} % "
        f"{OF_ALL_STEPS if few or _is_rare(own) else basis.of_a_step}"
    )


def _is_rare(own: pd.DataFrame) -> bool:
    """Less than once a step."""
    return int(own["stretches"].sum()) < int(own["per"].iloc[0])


def _where(own: pd.DataFrame) -> str:
    """`in one stretch between optimizer and data`; of several places the one that costs most is named."""
    count, per = int(own["stretches"].sum()), int(own["per"].iloc[0])
    place = _place(own.iloc[0])
    if len(own) == 1 and count in (1, per):
        return f"in one stretch {place}"
    told = count // per if count % per == 0 else count
    often = f"{told} stretch{'' if told == 1 else 'es'}"
    often += f" in {per} steps" if count > per and count % per else ""
    if len(own) == 1:
        return f"in {often} {place}"
    is_most = own["idle_a_step_ns"].iloc[0] >= _SILENT_HOSTS_MOST * own["idle_a_step_ns"].sum()
    return f"in {often}, {'most of it' if is_most else 'more than anywhere else'} {place}"


def _place(row: pd.Series) -> str:
    """`between optimizer and data, in train`."""
    since, until, around = (
        None if pd.isna(row[name]) else short_name(row[name]) for name in ("since", "until", "range")
    )
    between = f"between {since} and {until}" if since and until else f"after {since}" if since else f"before {until}"
    return f"{between}{f', in {around}' if around else ''}"


# Rules about hosts that compile in the steps that were recorded, while their GPUs wait.


COMPILING_PCT = 5.0
"""Of a step, in which the GPU idles while its host compiles."""

_WHY_CAPTURED = (
    "Graphs are captured before they are replayed, and nothing of them runs meanwhile: record later, once they are. "
    "What captures anew in a running job meets new sizes: pad to few."
)


def _does(names: list[str]) -> str:
    compilers = " and ".join(name for name in names if name != CAPTURE)
    return " and ".join([*[f"compiles ({compilers})"] * bool(compilers), *["captures graphs"] * (CAPTURE in names)])


def _why(names: list[str]) -> str:
    if names == [CAPTURE]:
        return _WHY_CAPTURED
    return WHY_COMPILED[DYNAMO if DYNAMO in names else XLA]


def compiling(
    headline: Headline,
    steps: Steps,
    compilations: Compilations,
    step_needs: StepNeeds,
    episodes: Episodes,
    places: Places,
    replay: Replay,
    *,
    compiling_pct: float = COMPILING_PCT,
) -> list[Finding]:
    """A GPU idles for 5 % of a step while its host compiles (torch.compile, or XLA), or captures CUDA graphs.

    Not where the job would be no quicker if that host took no time at all: another rank is later.
    """
    if not len(compilations) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    table = in_a_step(compilations)
    idle_ns = table.groupby("rank")["idle_a_step_ns"].sum()
    rank = int(idle_ns.idxmax())
    shares = host_shares(idle_ns, rank, basis, compiling_pct)
    most_ns = shares.most_gained_ns(float(idle_ns[rank]), replay) if shares else None
    if shares is None or most_ns is None:
        return []
    few = few_steps_of(step_needs, basis, rank, HOST.column, float(idle_ns[rank]))
    own = table[table["rank"] == rank]
    names = [str(name) for name in own["compiler"]]
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"{f'{few.mostly} r' if few else 'R'}ank {rank}'s host {_does(names)} "
            f"for {time_text(float(own['host_a_step_ns'].sum()))} {'of a mean step' if few else basis.a_step}: its GPU "
            f"idles {time_text(float(idle_ns[rank]))} of it, {shares.pct:.0f} % "
            f"{OF_ALL_STEPS if few else basis.of_a_step}{shares.also(places)}.",
            evidence=plain(own[["rank", "compiler", "stretches", "host_ns", "idle_ns"]]),
            recommendation=_why(names),
            caveat="Compiled code that is kept on disk, or autotuning left out, makes it shorter, not rarer.",
            gain_ns=most_ns,
            gain_is_bound=True,
            steps=few.steps if few else None,
            is_of_hosts=True,
            named=shares.named(rank),
            table="compilations",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


# Rules about debugging that was left on: autograd's detection of anomalies.


LEAST_CHECKS = 10
"""A step: one for each gradient. A program may check its loss itself."""

_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::item")
"""What autograd calls for each gradient: which are NaN, whether any is, and the answer, read back by the host."""

_ONLY = "aten::_is_any_true"
"""That of them which programs do not call."""


def checked_gradients(
    headline: Headline,
    steps: Steps,
    operators: Operators,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    *,
    least_checks: int = LEAST_CHECKS,
) -> list[Finding]:
    """The backward pass looks for NaN in ten gradients of a step or more: torch.autograd.detect_anomaly is on."""
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps), ranks)
    table = rows_where(operators.table, operators.table["autograd"] == "backward")
    table = table[table["operator"].isin(_CHECKS)]
    per = steps_of_operators(steps, basis)
    checks = (table[table["operator"] == _ONLY].groupby("rank")["calls"].sum().astype("float64") / per).dropna()
    held = checks[checks >= least_checks]
    if held.empty:
        return []
    host_ns = (table.groupby("rank")["host_total_ns"].sum().astype("float64") / per).reindex(held.index)
    rank = int(host_ns.idxmax())
    share = 100.0 * host_ns[rank] / basis.mean_ns(rank)
    return [
        Finding(
            severity=severity(share),
            title=f"Autograd looks for NaN in every gradient (detect_anomaly is on): rank {rank}'s host is "
            f"in {checks[rank]:,.0f} such checks for {time_text(host_ns[rank])} {basis.a_step}, "
            f"{share:.0f} % {basis.of_a_step}, and waits for its GPU in each"
            f"{also_on(held.index, basis.window_ns.index, places)}.",
            evidence=plain(
                table.loc[table["rank"] == rank, ["rank", "operator", "calls", "host_total_ns", "gpu_total_ns"]]
            ),
            recommendation="Leave torch.autograd.set_detect_anomaly off but while you look for a NaN: it also records "
            "Python's stack of every operator of the forward pass.",
            caveat="What recording stacks takes is not counted.",
            gain_ns=round(host_ns[rank]),
            is_of_hosts=True,
            named=with_others(rank, held.index, basis.window_ns.index),
            table="operators",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


# Rules about values that a program reads back one by one: is this tensor finite, and this one?


CHECKED_PCT = 3.0
"""Of a step, in which a host checks values."""

CHECKS = ("aten::isfinite", "aten::isnan", "aten::isinf")
"""Which of a tensor's values are what they should not be."""

_ANSWERS = ("aten::all", "aten::any", "aten::item")
"""Whether any is, and the answer, read back by the host; programs call them for more than that."""

_NAMES = [*CHECKS, *_ANSWERS]


def checked_values(
    headline: Headline, steps: Steps, operators: Operators, launch_loops: LaunchLoops, episodes: Episodes,
    places: Places, replay: Replay, ranks: Ranks, *, least_checks: int = LEAST_CHECKS, checked_pct: float = CHECKED_PCT,
) -> list[Finding]:  # fmt: skip
    """The program asks of ten tensors of a step or more, one after the other, whether they are finite.

    Where a host spends 3 % of a step in that, and the job would be quicker if that host took less. Of what is called
    for other answers too, as many calls count as there are checks. Autograd's own checks have a rule of their own.
    """
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps), ranks)
    table = operators.table[(operators.table["autograd"] != "backward") & operators.table["operator"].isin(_NAMES)]
    checks, spent_ns = _checks(table, steps_of_operators(steps, basis), least_checks)
    if spent_ns.empty:
        return []
    rank = int(spent_ns.idxmax())
    shares = host_shares(spent_ns, rank, basis, checked_pct)
    if shares is None:
        return []
    most_ns = shares.most_gained_ns(float(spent_ns[rank]), replay)
    if most_ns is None:
        return []
    loops = launch_loops.table
    asking = loops[loops["loop"].astype("str").str.contains("|".join(CHECKS))]
    won = won_by_one_turn(asking, replay, shares, checks[rank] * basis.per, most_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=Title(
                f"Rank {rank}'s host asks {basis.times(checks[rank] * basis.per)}, of one tensor after the other, "
                f"whether its values are finite, and reads each answer back: {time_text(float(spent_ns[rank]))} "
                f"{basis.a_step}, {shares.pct:.1f} % {basis.of_a_step}{shares.also(places)}.",
                *once("Asked once for all", won, basis),
            ),
            evidence=plain(table.loc[table["rank"] == rank, ["rank", "operator", "calls", "host_total_ns"]]),
            recommendation="Ask once for all tensors, and on the GPU: the norm that clip_grad_norm_ returns is not "
            "finite where any gradient is not; read it every N steps.",
            caveat="A profiler slows the host.",
            gain_ns=won.gain_ns,
            gain_is_bound=won.is_bound,
            unprofiled_gain_ns=won.unprofiled_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="operators",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _checks(table: pd.DataFrame, per: pd.Series, least: int) -> tuple[pd.Series, pd.Series]:
    """Of each rank that makes many: how many a step, and its host's time in them and in their answers."""
    by_name = table.groupby(["rank", "operator"])[["calls", "host_total_ns"]].sum().astype("float64")
    calls, host_ns = (by_name[name].unstack().reindex(columns=_NAMES) for name in by_name.columns)  # noqa: PD010 - no row twice
    checks = calls[[*CHECKS]].sum(axis=1)
    as_many = (1 / calls).mul(checks, axis=0).clip(upper=1.0)
    a_step = (checks / per).reindex(checks.index)
    is_many = (a_step >= least) & (calls["aten::item"] >= least * per.reindex(checks.index))
    return a_step[is_many], ((host_ns * as_many).sum(axis=1) / per)[is_many.index[is_many]]


# The rule about loops of launches: a host that launches the same for one tensor, or sample, after the other.


LOOP_LAUNCHES = 50
"""Of a step, in one loop."""

LOOP_PCT = 5.0
"""Of a step, which a host takes for one loop."""

_MANY_LAUNCHES_MOST = 3

_OF_OPTIMIZER = (
    "Update all parameters at once: fused=True or foreach=True of PyTorch's optimizers, torch._foreach_mul_ and the "
    "like in one of your own."
)

_OF_TENSORS = (
    "Take all tensors at once: torch._foreach_mul_, torch._foreach_lerp_ and the like take lists of them (averages of "
    "parameters: torch.optim.swa_utils.get_ema_multi_avg_fn; norms of gradients: torch.nn.utils.clip_grad_norm_)."
)

_COPY = "aten::copy_"

_COPIES_ALONE = r"Mem(?:cpy|set) [^,]*(?:, Mem(?:cpy|set) [^,]*)*"
"""Turns that nothing but copies: rules about copies tell of these."""

_OF_COPIES = (
    "Copy all tensors at once (torch._foreach_copy_). Gradients that DistributedDataParallel copies into its buckets "
    "and back need no copy with gradient_as_bucket_view=True."
)

_OF_TURNS = (
    "If a turn does not need the result of another (samples, classes), stack their tensors and compute all at once "
    "(torch.vmap makes a function of one into one of many). If it does, replay the loop as a CUDA graph, or let "
    "torch.compile fuse a turn."
)

_WAITING = (
    " It waits for the GPU, too: indexing by a boolean mask, nonzero and .item() ask it for a number. torch.where "
    "and products with the mask keep shapes and wait for nothing; or index once for all turns."
)


def many_launches(
    headline: Headline, steps: Steps, launch_loops: LaunchLoops, episodes: Episodes, places: Places, replay: Replay, *,
    loop_launches: int = LOOP_LAUNCHES, loop_pct: float = LOOP_PCT, clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """A host launches in a loop, 50 times a step and more, for 5 % of a step, and 3 % would go with one turn of it.

    The three that gain most. Turns with products of matrices may be layers, which need each other, and are not told;
    those of copies alone, and checks of values, have rules of their own.
    The gain is of the job replayed with the host's work of one turn a run, and no waits within; at most that where
    turns launch alike and may need each other's results.
    """
    if not len(headline) or not len(launch_loops):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = _often(launch_loops, steps_of_operators(steps, basis), loop_launches)
    told = [each for _, own in table.groupby("loop", sort=False) if (each := _worst(own, basis, loop_pct))]
    gains = gains_of(replay, [(_once(row, shares),) for row, shares in told]) if told else None
    of_each: list[Gain | None] = [*gains] if gains else [None] * len(told)
    found = [
        _found(row, shares, gain, basis, episodes, places, clear_gain_pct)
        for (row, shares), gain in zip(told, of_each, strict=True)
        if gain is None or 100 * gain.gain_ns >= clear_gain_pct * gain.before_ns
    ]
    return sorted(found, key=lambda each: -(each.expected_ns or 0))[:_MANY_LAUNCHES_MOST]


def _often(launch_loops: LaunchLoops, per: pd.Series, least: int) -> pd.DataFrame:
    """Loops that launch as often as that, with `a_step` launches and `host_a_step_ns` of a mean step."""
    table = launch_loops.table
    each = table["rank"].map(per).astype("float64")
    table = table.assign(a_step=table["launches"] / each, host_a_step_ns=table["host_ns"] / each)
    is_check = table["loop"].astype("str").str.contains("|".join(CHECKS))
    is_copy = table["of_uploads"].astype(bool) | table["loop"].astype("str").str.fullmatch(_COPIES_ALONE)
    return table[(table["a_step"] >= least) & ~(table["has_products"].astype(bool) | is_copy | is_check)]


def _worst(own: pd.DataFrame, basis: Basis, least_pct: float) -> tuple[pd.Series, HostShares] | None:
    """The rank whose host takes longest for the loop, with what part of a step that is."""
    by_rank = own.set_index("rank")["host_a_step_ns"].astype("float64")
    rank = int(by_rank.idxmax())
    shares = host_shares(by_rank, rank, basis, least_pct)
    return None if shares is None else (own.loc[own["rank"] == rank].iloc[0], shares)


def _once(row: pd.Series, shares: HostShares) -> Change:
    """One turn of each run."""
    return Change("loop", 0.0, frozenset(shares.ranks), name=str(row["loop"]))


def _found(
    row: pd.Series,
    shares: HostShares,
    gain: Gain | None,
    basis: Basis,
    episodes: Episodes,
    places: Places,
    clear_gain_pct: float,
) -> Finding:
    rank, host_ns = int(row["rank"]), float(row["host_a_step_ns"])
    is_by_tensor = bool(row["of_sizes"]) or _is_of_optimizer(row)
    won = _won(row, gain, host_ns, is_bound=not is_by_tensor)
    each = " tensor by tensor" if is_by_tensor else ""
    expected_ns = won.gain_ns if won.unprofiled_ns is None else won.unprofiled_ns
    expected_pct = 100 * expected_ns * basis.per / float(basis.window_ns[rank])
    return Finding(
        severity=severity(expected_pct),
        title=Title(
            f"Rank {rank}'s host launches {digits(float(row['a_step']))} operations {basis.a_step}{each} in "
            f"{loops(row)} ({row['loop']}): {time_text(host_ns)}, {shares.pct:.0f} % {basis.of_a_step}"
            f"{shares.also(places)}. With one turn for all of them {basis.whole} would be ",
            won,
            ".",
        ),
        evidence=plain(pd.DataFrame([row]).drop(columns=["a_step", "host_a_step_ns"])),
        recommendation=_many_launches_advice(row),
        caveat="In the gain kernels take as long as recorded: fewer, larger ones take less. A profiler slows the host.",
        gain_ns=won.gain_ns,
        gain_error_ns=gain.error_ns if gain else None,
        gain_is_bound=won.is_bound,
        unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
        changes=changed(gain),
        is_of_hosts=True,
        named=shares.named(rank),
        table="launch_loops",
        is_to_do_first=expected_pct >= clear_gain_pct,
        part_of=lateness_or_hosts(rank, episodes),
    )


def loops(row: pd.Series) -> str:
    """`a loop of 160 turns`, `12 loops of 12 turns each`, `14 loops of 17 turns on average`: of a mean step."""
    runs, turns = round(row["runs"] * row["a_step"] / row["launches"]), row["turns"] / row["runs"]
    if runs <= 1:
        return f"a loop of {digits(turns)} turns"
    return f"{runs} loops of {turns:,.0f} turns {'each' if float(turns).is_integer() else 'on average'}"


def _won(row: pd.Series, gain: Gain | None, host_ns: float, *, is_bound: bool) -> Won:
    """What the replay says; without one at most the time of all turns but one."""
    if gain is None:
        return Won(round(host_ns * (1 - row["runs"] / row["turns"])), is_bound=True)
    return Won.of(gain, is_bound=is_bound or gain.is_bound)


def _is_of_optimizer(row: pd.Series) -> bool:
    return pd.notna(row["range"]) and host_names.phase(str(row["range"])) == "optimizer"


def _many_launches_advice(row: pd.Series) -> str:
    waits = _WAITING if 2 * row["blocking_calls"] >= row["turns"] else ""
    if _is_of_optimizer(row):
        return f"{_OF_OPTIMIZER}{waits}"
    if row["of_sizes"] and str(row["loop"]).rpartition(": ")[2] == _COPY:
        return _OF_COPIES
    return f"{_OF_TENSORS if row['of_sizes'] else _OF_TURNS}{waits}"
