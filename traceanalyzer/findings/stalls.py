"""CPU work that launches nothing: preprocessing, garbage collection, checkpoints, compilation, first calls.

In every step, or in a few that are much longer than the others, GPUs wait while the CPU does something else.

**Why.** A range, a Python frame (`with_stack=True`) or a call names the work; else it is unrecorded. An
event in one step of several is real, but may not recur: its saving has the lower end 0.

**Fix.** Preprocessing: in DataLoader workers, or on the GPU. Garbage collection: `gc.disable()` and `gc.collect()`
every N steps on all ranks together. Checkpoints: `torch.distributed.checkpoint.async_save`. Recompilation:
`torch._dynamo.mark_dynamic` or padded shapes; `TORCH_LOGS=recompiles` names the reason. First calls: record later
steps.

**Measured.** Garbage collection in every step of one rank, removed: 232 → 35.7 ms/step.
"""

import re
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.blame.step_budget import DOING, MEMORY_CALLS, RANGE, StepNeeds, WhatRan
from traceanalyzer.analyses.host.activity import MAIN, NOTHING
from traceanalyzer.analyses.host.api_calls import FirstCalls
from traceanalyzer.analyses.host.cpu_time import LEAST_NS, OPERATOR, Compilations, HostSilences, HostWork
from traceanalyzer.analyses.host.host_names import is_data
from traceanalyzer.analyses.replay.changes import Change, Changeable
from traceanalyzer.analyses.statistics import SHARE, few_longer
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run, doing, launching_ns, other_work
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import COMPUTE, HIGH, HOST, LOW, MEDIUM, named, numbered

PLACE = "Input and CPU", 5

_CAUSES = (
    (
        r"\bgc\b|garbage",
        "Garbage collection",
        "No gc.collect() in a step; gc.disable(), and collect on all ranks every N steps.",
    ),
    ("save|serialization|state_dict", "Checkpoint", "torch.distributed.checkpoint.async_save, or save less often."),
    ("eval|valid", "Evaluation", "Evaluate less often or on fewer batches."),
    (
        r"^torch\.compile$",
        "Compilation",
        'TORCH_LOGS="recompiles" says why; new lengths: torch._dynamo.mark_dynamic.',
    ),
    ("^XLA$", "Compilation", "Pad to few shapes and keep jax_compilation_cache_dir; jax.log_compiles() says why."),
    ("^graph capture$", "Graph capture", "Record after the graphs are captured; pad inputs to few sizes."),
    (
        r"optimizer\w*\.step",
        "CPU optimizer",
        "Keep the optimizer on the GPU if memory allows; else a fused one (AdamW(fused=True), DeepSpeedCPUAdam).",
    ),
)
"""What names stand for, and what to do about it."""

_PARTS: dict[str, Changeable] = {HOST.column: "cpu", COMPUTE.column: "compute", "exposed_copy_ns": "copy"}
"""Parts of a rank's steps, and what of the job each is."""


def stalls(
    run: Run,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    host_work: HostWork,
    host_silences: HostSilences,
    compilations: Compilations,
    first_calls: FirstCalls,
) -> Iterator[Finding]:
    """All ranks do something other than launch training: in every step on their CPUs, or in a few steps.

    The change is ranks that take as long as without it.
    """
    rare = _in_few_steps(run, step_needs, what_ran)
    yield from rare
    every = [_cpu_work(host_work, host_silences, compilations), _other_work(run, what_ran)]
    known = {item["name"] for finding in rare for item in finding.evidence} | {MEMORY_CALLS}  # allocator retries
    first_ns = first_calls.table.groupby("name", observed=True)["host_ns"].sum() / run.count
    work = pd.concat(every, ignore_index=True)
    is_first = work["host_ns"] * SHARE <= work["name"].map(first_ns.rename(str)).fillna(0)
    yield from _in_each_step(run, step_needs, host_silences, work[~is_first], known)
    yield from _first_calls(run, first_calls)


def _in_few_steps(run: Run, step_needs: StepNeeds, what_ran: WhatRan) -> list[Finding]:
    """What all ranks do in fewer than half of the steps; the first one may be a warm-up."""
    needs = run.within(step_needs.table)
    needs = needs[needs["step"] != needs["step"].min()]
    longest = pd.Series(dtype="float64"), ""
    for column in _PARTS:
        wide = _by_step(needs, column)
        more = (wide - wide.median()).min(axis=1)[few_longer(wide.min(axis=1))]
        longest = max(longest, (more, column), key=lambda each: float(each[0].sum()))
    more, column = longest
    steps = tuple(map(int, more.index))
    if not run.is_worth(more.sum() / run.count):
        return []
    name = _what_is_more(run.within(what_ran.table), column, steps, float(more.mean()) * len(run.ranks))
    if name is None:
        return []
    noun, fix = _cause(name)
    spent = _by_step(needs, "needed_host_ns" if column == HOST.column else column).mean(axis=1)
    factor = float(spent.drop(list(steps)).median() / spent[list(steps)].mean())
    when = numbered("step", steps)
    return [
        Finding(
            headline=f"{noun} {'stalls' if column == HOST.column else 'takes'} the GPUs {time_text(more.mean())} "
            f"in {when}.",
            why=f"{short_name(name)} keeps all ranks longer in {when} than in the other steps.",
            fix=fix,
            changes=(Change(_PARTS[column], factor, steps=frozenset(steps)),) if factor < 1 else (),
            steps=steps,
            evidence=({"name": name, "part": column, "longer_ns": round(more.mean())},),
            table="step_needs",
        )
    ]


def _by_step(needs: pd.DataFrame, column: str) -> pd.DataFrame:
    times = needs.assign(ns=needs[column].astype("Float64").astype("float64"))
    return times.pivot_table(index="step", columns="rank", values="ns", aggfunc="sum")


def _what_is_more(work: pd.DataFrame, column: str, steps: tuple[int, ...], longer_ns: float) -> str | None:
    """What takes most of the time that these steps are longer: of kernels only what is in no other step."""
    is_host = column == HOST.column
    for what in (DOING, RANGE) if is_host else (RANGE,):
        own = work[(work["part"] == column) & (work["what"] == what)]
        times = own.pivot_table(index="name", columns="step", values="total_ns", aggfunc="sum", fill_value=0)
        is_own = times.columns.isin(steps)
        usual = times.loc[:, ~is_own].median(axis=1).fillna(0)
        more = (times.loc[:, is_own].mean(axis=1) - usual)[(usual == 0) | is_host]
        if len(more) and more.max() >= SHARE * longer_ns:
            return str(more.idxmax())
    return None


def _cpu_work(host_work: HostWork, host_silences: HostSilences, compilations: Compilations) -> pd.DataFrame:
    """What CPUs do without launching: `rank`, `name`, and `host_ns` and `idle_ns` of a mean step.

    Operators that compute on the CPU are one work.
    """
    work = _in_window(host_work.table)
    work = work[
        (work["role"] == MAIN) & (work["launches"] == 0) & ~work["name"].astype("str").map(is_data).astype(bool)
    ]
    is_operator = work["what"] == OPERATOR
    operators = work[is_operator & (work["host_ns"] >= LEAST_NS * work["calls"])]
    by_name = operators.groupby("name", observed=True)["host_ns"].sum().sort_values(ascending=False)
    operators = operators.assign(name=named([*map(str, by_name.index)], 2))
    silent = _in_window(host_silences.table).assign(name=NOTHING)
    compiling = _in_window(compilations.table).rename(columns={"compiler": "name"})
    every = pd.concat([work[~is_operator], operators, silent, compiling]).astype({"name": "str"})
    own = every.groupby(["rank", "name", "steps"], dropna=False)
    rows = own[["host_ns", "idle_ns", "seen_ns"]].sum().reset_index()
    # In a step GPUs count as idle before the capture's first operation and after its last one, as in `step_needs`.
    unseen_ns = (rows["host_ns"] - rows["seen_ns"]).where(rows["steps"].notna(), 0)
    rows = rows.assign(idle_ns=rows["idle_ns"] + unseen_ns)
    times = rows[["host_ns", "idle_ns", "steps"]].astype("Float64").astype("float64")
    return rows.assign(**{name: times[name].fillna(0) / times["steps"].fillna(1) for name in ("host_ns", "idle_ns")})


def _in_window(times: pd.DataFrame) -> pd.DataFrame:
    """Without steps the figures begin with the first GPU operation and end with the last one: so does `host_ns`."""
    return times.assign(host_ns=times["host_ns"].where(times["steps"].notna(), times["seen_ns"]))


def _other_work(run: Run, what_ran: WhatRan) -> pd.DataFrame:
    """The Python frame or range that keeps a rank's GPU idle for most of the time that it waits for its CPU."""
    rows = []
    for rank in run.ranks:
        times = doing(run, what_ran, rank)
        name = other_work(times)
        if name:
            rows.append({"rank": rank, "name": name, "host_ns": times[name], "idle_ns": times[name]})
    return pd.DataFrame(rows, columns=["rank", "name", "host_ns", "idle_ns"])


def _in_each_step(
    run: Run, step_needs: StepNeeds, host_silences: HostSilences, work: pd.DataFrame, known: set[str]
) -> Iterator[Finding]:
    """What all ranks' CPUs do for as long, while their GPUs are idle."""
    needs = launching_ns(run, step_needs).reindex(run.ranks).fillna(run.window_ns)
    for name, own in work.groupby("name"):
        by_rank = own.groupby("rank")[["host_ns", "idle_ns"]].max().reindex(run.ranks).fillna(0)
        spent, idle = by_rank["host_ns"], by_rank["idle_ns"]
        if not run.is_worth(idle.min()) or spent.min() < SHARE * spent.max() or name in known:
            continue
        noun, fix = _cause(str(name))
        yield Finding(
            headline=f"{noun} keeps GPUs idle up to {time_text(idle.max())}{run.each}.",
            why=f"The CPU spends {time_text(spent.max())}{run.each} in {_who(str(name), host_silences)}, "
            "and launches no kernel there.",
            fix=fix,
            changes=(Change("cpu", max(0.0, 1 - float((spent / needs).min()))),),
            evidence=tuple({"rank": rank, "host_ns": round(ns)} for rank, ns in spent.items()),
            table="host_work",
            stated_ns=float(idle.max()),
        )


def _who(name: str, host_silences: HostSilences) -> str:
    """What takes the time; where nothing is recorded where the longest of it is."""
    if name != NOTHING:
        return short_name(name)
    longest = _in_window(host_silences.table).sort_values("host_ns", ascending=False, kind="stable").iloc[0]
    ends = (short_name(longest[end]) if isinstance(longest[end], str) else "…" for end in ("since", "until"))
    return f"code that is not recorded (the longest between {' and '.join(ends)})"


def _cause(name: str) -> tuple[str, str]:
    """The noun for what takes the time, and what to do about it."""
    if name.startswith(NOTHING):
        return (
            "Unrecorded CPU work",
            "Record Python stacks or put record_function (NVTX) ranges there to see what runs.",
        )
    for pattern, noun, fix in _CAUSES:
        if re.search(pattern, name, re.IGNORECASE):
            return noun, fix
    short = short_name(name)
    return f"CPU work in {short}", f"Move {short} to the GPU or to DataLoader workers, or do it less often."


def _first_calls(run: Run, first_calls: FirstCalls) -> Iterator[Finding]:
    """Calls that take long only when they are first made: nothing that a running job does."""
    table = run.within(first_calls.table)
    idle = table.groupby("rank")["idle_ns"].sum().astype("float64") / run.count
    if not len(idle) or not run.is_worth(idle.max()):
        return
    rank = int(idle.idxmax())
    called = table[table["rank"] == rank].groupby(["name", "operator"], observed=True, dropna=False)["idle_ns"].sum()
    name, operator = called.idxmax()
    where = f" in {operator}" if isinstance(operator, str) else ""
    headline = run.results["headline"].table.set_index("rank").loc[rank]
    shares = ((headline["window_ns"], HIGH), (headline["idle_ns"], MEDIUM))
    yield Finding(
        headline=f"First-call work: GPUs wait up to {time_text(idle[rank])}{run.each} for it.",
        why=f"{name}{where} blocks rank {rank}'s CPU far longer the first time than later.",
        fix="Record after some warm-up steps: torch.profiler.schedule(wait=1, warmup=3, active=3).",
        named=(rank,),
        table="first_calls",
        is_about_capture=True,
        severity=next((severity for ns, severity in shares if called.sum() >= SHARE * ns), LOW),
    )
