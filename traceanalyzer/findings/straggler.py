"""Stragglers: ranks, or links, that the others wait for.

All ranks but one wait in the same collective; the one that comes last waits for nobody.

**Why.** A collective ends when its last member arrives. The report names what takes that rank longer: the same
kernels run slower (a throttled or shared GPU), more or larger operators (uneven work), its CPU (another process,
garbage collection), its copies, its DataLoader, or its link.

**Fix.** By cause. Same kernels slower: check clocks, power and temperature (`nvidia-smi -q -d CLOCK,PERFORMANCE`) and
other processes. More work: balance tokens per rank. CPU: bind processes to cores near their GPU (`numactl`,
`--cpu-bind`), look for work that only rank 0 does (logging, metrics, checkpoint).

**Measured.** Twelve extra products of 8192² on rank 1, removed: 78.6 → 57.9 ms/step. A second training process on a
rank's cores, removed: 37.0 → 20.9 ms/step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.blame.episodes import Episodes, is_called_alike
from traceanalyzer.analyses.blame.slow_transfers import WITH_ALL, WITH_MOST
from traceanalyzer.analyses.blame.step_budget import (
    COMPILING,
    MEMORY_CALLS,
    MOST_NAMES,
    OTHER_PROCESS,
    StepNeeds,
    WhatRan,
)
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.host.cpu_time import BESIDE
from traceanalyzer.analyses.operators.operators import Operators, same_calls
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.analyses.trace import GpuMetrics, Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, time_text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import COMPUTE, DATA, HOST, SYNC, first_upper, named, numbered

PLACE = "Uneven ranks", 1

Row = Mapping[str, Any]


def straggler(
    run: Run,
    episodes: Episodes,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    operators: Operators,
    ranks: Ranks,
    gpu_metrics: GpuMetrics,
) -> Iterator[Finding]:
    """Ranks take longer than their peers with a part of their step, and the others wait for them.

    The change gives that part the time that the peers take. Of stragglers that hide each other all change together.
    """
    rows = [row for row in plain_rows(episodes.table) if run.is_worth(row["excess_ns"])]
    reasons = partial(_reason, step_needs, what_ran, operators, ranks, gpu_metrics, run)
    hiding = _hiding(rows, run)
    if hiding:
        yield _joint(hiding, run, step_needs)
    for row in rows:
        if row not in hiding:
            yield _finding(row, run, reasons, step_needs)


def _hiding(rows: Sequence[Row], run: Run) -> list[Row]:
    """Those that save more once the others are fixed than alone, where none alone saves most; longest wait first."""
    known = [row for row in rows if row["changes"]]
    if len(known) < 2:
        return []
    saved = [run.saved_ns(*row["changes"]) for row in known]
    every = run.saved_ns(*_changes(known))
    last = [every - run.saved_ns(*_changes([other for other in known if other is not row])) for row in known]
    hiding = [row for row, own, then in zip(known, saved, last, strict=True) if run.is_worth(then - own)]
    if len(hiding) < 2 or max(saved) >= SHARE * run.saved_ns(*_changes(hiding)):
        return []
    return sorted(hiding, key=lambda row: -row["cost_ns"])


def _changes(rows: Sequence[Row]) -> tuple[Any, ...]:
    return tuple(change for row in rows for change in row["changes"])


def _joint(rows: Sequence[Row], run: Run, needs: StepNeeds) -> Finding:
    """One finding of stragglers that hide each other."""
    ranks = tuple(sorted({rank for row in rows for rank in row["ranks"]}))
    many = "Stragglers" if len(ranks) > 1 else "Straggler"
    causes = list(dict.fromkeys(row["cause"] for row in rows))
    hide = "hide each other" if len(ranks) > 1 else "takes longer"
    does = "; ".join(f"{_who(row)} {_does(row, run)}{_most_of_it(row)}" for row in rows)
    steps = {step for row in rows for step in _steps(row) or ()}
    fixes = " ".join(dict.fromkeys(_fix(row, run) for row in rows))
    return Finding(
        headline=f"{many}: {numbered('rank', ranks)} {hide} ({named(causes)}).",
        why=f"{first_upper(does)}: fixing one alone saves less than half.",
        fix=f"Fix all of them. {fixes}",
        changes=_changes(rows),
        ranks=ranks,
        steps=None if any(_steps(row) is None for row in rows) else tuple(sorted(steps)),
        cause=" and ".join(causes),
        evidence=tuple(_evidence(row) for row in rows),
        table="episodes",
        interval_ns=_interval(rows[0], needs),
    )


def _finding(row: Row, run: Run, reasons: Callable[[Row], tuple[str, str]], needs: StepNeeds) -> Finding:
    reason, fix = reasons(row)
    waits, named_ranks = _waits(row, run)
    said = ", ".join(filter(None, (_in_steps(row) + _detail(row, run), reason)))
    return Finding(
        headline=_headline(row, run),
        why=f"{first_upper(said)}; {waits}.",
        fix=fix or _fix(row, run),
        changes=row["changes"],
        ranks=row["ranks"],
        named=named_ranks,
        steps=_steps(row),
        cause=row["cause"],
        evidence=(_evidence(row),),
        table="episodes",
        interval_ns=_interval(row, needs),
        caveat=_caveat(row),
    )


def _steps(row: Row) -> tuple[int, ...] | None:
    return None if row["is_in_every_step"] else row["numbers"] or None


def _evidence(row: Row) -> dict[str, Any]:
    shown = ("cause", "name", "own_ns", "peers_ns", "excess_ns", "cost_ns", "waiting_ranks", "collective")
    return {"ranks": ",".join(map(str, row["ranks"])), **{name: row[name] for name in shown}}


def _interval(row: Row, needs: StepNeeds) -> tuple[int, int] | None:
    """The episode's first step on its first rank."""
    own = needs.table[needs.table["rank"] == row["ranks"][0]]
    own = own[own["step"] == row["numbers"][0]] if row["numbers"] else own
    return None if own.empty else (int(own["begin_ns"].iloc[0]), int(own["end_ns"].iloc[0]))


def _caveat(row: Row) -> str:
    if not row["changes"]:
        return "Only in steps that are not complete on all ranks, so what it saves is unknown."
    if row["name"] == OTHER_PROCESS:
        return "Inferred: no trace records what another process does."
    return (
        "Sizes that a kernel's grid does not show, such as sequence lengths, may differ." if _is_slow_gpu(row) else ""
    )


# What is longer, in words.


def _headline(row: Row, run: Run) -> str:
    """Who is a straggler, and by what: `Straggler: rank 3 computes 1.4× as long as its peers`."""
    many = len(row["ranks"]) > 1
    opening = "Alternating stragglers" if row["is_in_turn"] else "Stragglers" if many else "Straggler"
    return f"{opening}: {_who(row)} {_does(row, run)}."


def _who(row: Row) -> str:
    place = f" ({row['place']})" if row["place"] else ""
    return f"{numbered('rank', row['ranks'])}{place}"


_VERBS: Mapping[str, tuple[str, str]] = {
    "compute": ("computes", "compute"),
    "copies": ("copies", "copy"),
    "transfer": ("moves data", "move data"),
    DATA.key: ("loads data", "load data"),
    HOST.key: ("needs its CPU", "need their CPUs"),
    SYNC.key: ("is blocked in synchronizing calls", "are blocked in synchronizing calls"),
}


def _does(row: Row, run: Run) -> str:
    """`computes 1.4× as long as its peers`, `copies 4.1 ms/step longer than its peers`."""
    many, peers = len(row["ranks"]) > 1, run.peers_of(row["ranks"])
    if row["name"] == OTHER_PROCESS:
        return f"probably {'share their GPUs' if many else 'shares its GPU'} with another process"
    if _is_slow_gpu(row):
        return f"{'run' if many else 'runs'} the same kernels {_times(row['same_work_ratio'])} slower than {peers}"
    verb = _VERBS.get(row["cause"], ("idles", "idle"))[many]
    times = row["own_ns"] / row["peers_ns"] if row["peers_ns"] else 0
    if row["cause"] == "compute" and times >= RATIO:
        return f"{verb} {_times(times)} as long as {peers}"
    return f"{verb} {time_text(row['excess_ns'])}{_each(row, run)} longer than {peers}"


def _times(ratio: float) -> str:
    return f"{digits(ratio)}×"


def _each(row: Row, run: Run) -> str:
    return run.each if len(row["numbers"]) != 1 else ""


def _is_slow_gpu(row: Row) -> bool:
    """The same kernels take longer on these ranks, and not on others in other steps: that is unequal work."""
    return row["same_work_ratio"] is not None and not row["is_in_turn"]


def _in_steps(row: Row) -> str:
    steps = _steps(row)
    return f"in {numbered('step', steps)} " if steps else ""


def _detail(row: Row, run: Run) -> str:
    """The evidence: both times, and the name of what takes most of the difference."""
    own, peers = (None if row[name] is None else time_text(row[name]) for name in ("own_ns", "peers_ns"))
    both = f" ({own}, {run.peers_of(row['ranks'])}: {peers})" if peers else f" ({own})"
    if row["name"] == OTHER_PROCESS:
        return f"at times compute takes longer, whichever kernel runs{both}"
    if _is_slow_gpu(row):
        part = f" in {_name(row)}, and about as long elsewhere" if row["name"] else ""
        return f"the same kernels take {_times(row['same_work_ratio'])} as long{part}{both}"
    if row["cause"] == HOST.key:
        return f"{_launching(row, run)}{_most_of_it(row)}"
    return f"{_PARTS.get(row['cause'], 'idle time')}{both}{_most_of_it(row)}"


def _launching(row: Row, run: Run) -> str:
    """What a step takes the CPU; of some steps the headline says by how much they are longer."""
    if row["own_host_ns"] is None or not row["is_in_every_step"]:
        return "CPU work before launches"
    launching, others = (time_text(row[name]) for name in ("own_host_ns", "peers_host_ns"))
    peers = run.peers_of(row["ranks"])
    most = others if peers.startswith("rank") else f"at most {others}"
    return f"a step's CPU work takes {launching} ({peers}: {most})"


_PARTS: Mapping[str, str] = {
    "compute": "compute kernels",
    "copies": "exposed copies",
    "transfer": "transfers",
    DATA.key: "waiting for data",
    SYNC.key: "synchronizing calls",
}


def _most_of_it(row: Row) -> str:
    is_said = not row["name"] or row["name"].lower() == row["cause"] or _is_slow_gpu(row)
    return "" if is_said else f", mostly {_name(row)}"


def _name(row: Row) -> str:
    name = str(row["name"])
    if name == NOTHING:
        return "Python or other code that no range, operator or call covers"
    if name.startswith(BESIDE):
        return f"unrecorded code while another thread runs {name.removeprefix(BESIDE)}"
    return short_name(name) if row["what"] in ("kernel", "copy") else name


def _waits(row: Row, run: Run) -> tuple[str, tuple[int, ...]]:
    """Who waits, for how long, and where; and the rank that this names."""
    where = f" in {collective_words(row['collective'])}" if row["collective"] else ""
    waited = row["is_in_every_step"] and row["wait_ns"]  # else they may wait in the step that follows
    cost = f"{time_text(waited or row['cost_ns'])}{_each(row, run)}{where}"
    if row["waiting_ranks"] == 1 and not row["is_in_turn"]:
        return f"rank {row['most_waiting_rank']} waits {cost}", (row["most_waiting_rank"],)
    others = "the other ranks wait" if row["is_in_turn"] else f"{row['waiting_ranks']:,} ranks wait"
    return f"{others} {cost}", ()


# Why, where other tables tell: another GPU, a slower CPU, more operators.


def _reason(
    step_needs: StepNeeds,
    what_ran: WhatRan,
    operators: Operators,
    ranks: Ranks,
    metrics: GpuMetrics,
    run: Run,
    row: Row,
) -> tuple[str, str]:
    """A clause for the evidence, and the fix that goes with it; empty where nothing else tells."""
    if row["cause"] == "compute":
        clock = _lower_clock(row, metrics) if _is_slow_gpu(row) else ""
        gpu = (clock, "") if clock else _other_gpu(row, ranks)
        return gpu if any(gpu) or _is_slow_gpu(row) else _more_calls(row, step_needs, what_ran, run)
    if row["cause"] == HOST.key and row["name"] is None and row["is_in_every_step"]:
        return _cpu(row, operators)
    if row["cause"] == HOST.key and row["name"] and is_called_alike(row["name"], row["ranks"], operators.table):
        return "which the other ranks call as often", f"Check the CPU: {_CPU}."
    return "", ""


def _more_calls(row: Row, step_needs: StepNeeds, what_ran: WhatRan, run: Run) -> tuple[str, str]:
    """How often these ranks run what takes most of the difference, and the others, as far as that is known."""
    steps, held = _steps(row), run.within(what_ran.table)
    held, count = (held[held["step"].isin(steps)], len(steps)) if steps else (held, run.count)
    held = held[(held["part"] == COMPUTE.column) & (held["what"] == row["what"])]
    calls = held[held["name"] == row["name"]].groupby("rank")["calls"].sum().astype("float64") / count
    peers_of = step_needs.table.groupby("rank")["peers"].first()
    others = [rank for rank in peers_of.index[peers_of == peers_of[row["ranks"][0]]] if rank not in row["ranks"]]
    most, usual = calls.reindex([*row["ranks"]]).max(), calls.reindex(others).fillna(0).median()
    is_cut = (held.groupby(["rank", "step"], dropna=False).size() >= MOST_NAMES).any()  # of short ones nothing is known
    if not others or pd.isna(most) or most <= usual or (not usual and is_cut):
        return "", ""
    most, usual = (digits(round(each, 1)) for each in (most, usual))
    peers = run.peers_of(row["ranks"])
    do = "does" if peers.startswith("rank") else "do"
    more = f" that {peers} {do} not make" if usual == "0" else f" ({peers}: {usual})"
    operator, _, _ = str(row["name"]).partition(" of ")
    fix = f"Remove the extra {operator} calls of {_who(row)}, or give the ranks equal work."
    return f"{most} calls {run.per}{more}", fix


def _other_gpu(row: Row, ranks: Ranks) -> tuple[str, str]:
    table = ranks.to_frame().set_index("rank")
    is_own = table.index.isin(row["ranks"])
    for column, words in (
        ("device_name", "a {} instead of a {}"),
        ("multiprocessors", "smaller ({} multiprocessors instead of {})"),
    ):
        own, others = ({*table.loc[mask, column].dropna()} for mask in (is_own, ~is_own))
        if len(own) == len(others) == 1 and own != others:
            said = f"the GPU is {words.format(*own, *others)}"
            return said, "Run all ranks on GPUs of one model, or give ranks on slower ones less work."
    return "", ""


_SM_CLOCK = r"(?i)sm[_ ]clock|gpc clock"
"""Counters of Cuspy (`sm_clock_mhz`) and Nsight Systems (`GPC Clock Frequency [MHz]`)."""


def _lower_clock(row: Row, metrics: GpuMetrics) -> str:
    """`SM clock 1,980 → 1,410 MHz, others 1,980`, where it makes up most of the difference in speed."""
    table = metrics.to_frame()
    clocks = table[table["counter"].astype("str").str.contains(_SM_CLOCK)]
    own, others = (clocks[clocks["rank"].isin(row["ranks"]) == is_own] for is_own in (True, False))
    slower = others["mean"].mean() / own["mean"].mean() - 1
    if own.empty or others.empty or slower < SHARE * (row["same_work_ratio"] - 1):
        return ""
    most, least = own["max"].max(), own["min"].min()
    return (
        f"SM clock {f'{most:,.0f} → ' if most > least else ''}{least:,.0f} MHz, others {others['mean'].mean():,.0f} MHz"
    )


def _cpu(row: Row, operators: Operators) -> tuple[str, str]:
    same = same_calls(operators.table, row["ranks"][0])
    if same is None or same.pace is None or same.covered < SHARE or same.pace < RATIO:
        return "", ""
    calls = f"the same {same.calls:,} operator calls take the CPU {_times(same.pace)} as long"
    return calls, f"Check the CPU: {_CPU}."


_CPU = "clock, other processes on its cores, binding to cores and the GPU's NUMA node, other Python threads (GIL)"


# What to do.


_GPU, _PART, _PAGEABLE = "slower GPU", "slower in part", "pageable"
_FIXES: Mapping[str, str] = {
    OTHER_PROCESS: "Find the other process ({processes}), and give this job the GPU alone.",
    _GPU: "The work is the same: check clocks, power and temperature ({health}).",
    _PART: "The work is the same: check memory clock and errors ({health}).",
    "compute": "Give the ranks equal work (lengths, batches, experts); if it is equal, check clocks ({health}).",
    "compute named": "Give the ranks equal work: find why {who} runs more, or larger, {name}.",
    _PAGEABLE: "DataLoader(pin_memory=True) and .to(device, non_blocking=True) on a copy stream.",
    "copies": "Run the copies of {who} on a stream of their own, or move less.",
    WITH_ALL: "Check what all data of {who} passes: network card, cable, switch port, PCIe ({topology}).",
    "transfer": "Compare the links of these ranks with the others' ({topology}, NCCL_DEBUG=INFO).",
    DATA.key: "On {who}: more num_workers and prefetch_factor, persistent_workers=True; look for slow storage.",
    SYNC.key: "Remove .item(), .cpu(), print(tensor) and blocking copies on {who}.",
    MEMORY_CALLS: "No torch.cuda.empty_cache() in the step on {who}; set {allocator}.",
    COMPILING: 'TORCH_LOGS="recompiles" shows the new shapes: pad to few lengths, or mark them dynamic.',
    "gc.": "gc.disable() after warm-up, and gc.collect() in the same step on all ranks.",
    BESIDE: "Move {beside} on {who} to a process of its own: one thread at a time runs Python.",
    HOST.key: "Put torch.profiler.record_function around what {who} runs there, or check the CPU: {cpu}.",
    "host named": "Move {name} out of the step on {who}, run it less often, or in the same step on all ranks.",
    "host operator": "Find why {who} spends more CPU time in {name}; if the others call it as often, check the CPU: "
    "{cpu}.",
    "": "See in the timeline what {who} does then, and do it less often or on all ranks.",
}
"""What to do, by the start of the name of what is longer, or by cause."""


def _fix(row: Row, run: Run) -> str:
    terms, name = run.terms, str(row["name"] or "")
    return _FIXES[_key_of_fix(row, name)].format(
        who=_who(row), name=_name(row), beside=name.removeprefix(BESIDE), cpu=_CPU, graphs=terms.graphs,
        health=terms.health_command, topology=terms.topology_command, processes=terms.processes_command,
        allocator=terms.allocator,
    )  # fmt: skip


def _key_of_fix(row: Row, name: str) -> str:
    if _is_slow_gpu(row):
        return name if name == OTHER_PROCESS else _PART if name else _GPU
    if name.endswith((WITH_ALL, WITH_MOST)):
        return WITH_ALL
    if row["cause"] == "copies" and _PAGEABLE in name.lower():
        return _PAGEABLE
    if row["cause"] == HOST.key and name != NOTHING:
        by_name = next((key for key in (MEMORY_CALLS, COMPILING, "gc.", BESIDE) if name.startswith(key)), None)
        return by_name or ("host operator" if "::" in name else "host named" if name else HOST.key)
    if row["cause"] == "compute" and name:
        return "compute named"
    return row["cause"] if row["cause"] in _FIXES else ""
