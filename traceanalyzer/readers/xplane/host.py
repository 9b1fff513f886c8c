"""What the host plane holds: API calls, the HLO operations and modules that they launch, steps, ranges, frames."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.model.schema import XLA_MODULES, XLA_PHASES
from traceanalyzer.readers.xplane.events import events, integers

STEP_DOMAIN, HOST_DOMAIN = "JAX step", "host"

_API = re.compile(r"^(?:cuda[A-Z]|cu[A-Z]|hip[A-Z])")

_FRAME = re.compile(r"^\$(?P<file>.+?):(?P<line>\d+) (?P<function>.+)$")

_BUILT_IN = re.compile(r"^\$(?!.+?:\d+ .)")
"""Functions of Python without a source line, such as `$time sleep`: the frame or range around them says where."""

LAUNCH = "Launch"
"""An API call that the profiler names after what it launches (`nvjet_…`, `Memset`): it tells no name of its own."""


def read_host(planes: list[tuple[Any, int]]) -> pd.DataFrame:
    """All events of the host's threads, given planes and their offsets in ns; `line` is the thread."""
    tables = [events(plane, lambda _: True, offset_ns) for plane, offset_ns in planes]
    found = pd.concat(tables, ignore_index=True) if tables else events_of_none()
    correlation = integers(found["correlation_id"]).fillna(-1).astype("int64")
    return found.assign(
        name=found["name"].astype("object"), thread=found["line"].astype("int64"), correlation=correlation
    )


def events_of_none() -> pd.DataFrame:
    """The table of no events."""
    return pd.DataFrame({name: [] for name in ("name", "line", "start_ns", "end_ns", "correlation_id", "step_num")})


def api_calls(host: pd.DataFrame, launched: Collection[int]) -> pd.DataFrame:
    """CUDA's and HIP's calls: events of their names, and those with the correlation id of a GPU operation.

    Args:
        host: events as of `read_host`.
        launched: correlation ids of the file's GPU operations.
    """
    is_named = _named(host, _API)
    calls = host[is_named | host["correlation"].isin(launched).to_numpy(dtype=bool)]
    names = calls["name"].where(is_named[calls.index], LAUNCH)
    return calls[["start_ns", "end_ns", "thread", "correlation"]].assign(name=names)


def frames(host: pd.DataFrame) -> pd.DataFrame:
    """Python frames, as PyTorch writes them: `file.py(12): function`."""
    own = host[_named(host, _FRAME)]
    names = own["name"].str.replace(_FRAME, r"\g<file>(\g<line>): \g<function>", regex=True)
    return own[["start_ns", "end_ns", "thread"]].assign(name=names)


def ranges(host: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Annotated steps (`StepTraceAnnotation`, by their number), runs of modules, phases of training, all other names.

    Args:
        host: events as of `read_host`.
        calls: those of them that are API calls.
        launches: those that launched an HLO instruction, as of `launches`.
    """
    rest_of_host = host.drop(index=calls.index, errors="ignore")
    is_other = (
        ~_named(rest_of_host, _FRAME) & ~_named(rest_of_host, _BUILT_IN) & (rest_of_host["name"] != "").to_numpy()
    )
    other = rest_of_host[is_other]
    number = integers(other["step_num"])
    steps = other[number.notna()].assign(name="step_" + number.dropna().astype(str), domain=STEP_DOMAIN, is_open=False)
    modules = _modules(launches).assign(domain=XLA_MODULES)
    phases = _phases(launches).assign(domain=XLA_PHASES, is_open=False)
    rest = other[number.isna()].assign(domain=HOST_DOMAIN, is_open=False)
    parts = [part for part in (steps, modules, phases, rest) if len(part)]
    columns = ["start_ns", "end_ns", "name", "thread", "domain", "is_open"]
    return pd.concat([part[columns] for part in parts]) if parts else pd.DataFrame(columns=columns)


def launches(
    calls: pd.DataFrame,
    ops: pd.DataFrame,
    phases: Mapping[tuple[str, str], str],
    in_loops: Collection[tuple[str, str]] = (),
) -> pd.DataFrame:
    """API calls that launched an operation with an HLO instruction, in order of thread and time, with that.

    `phases` are those of instructions, by module and name; `in_loops` such of a module's loops.
    """
    known = ops[ops["hlo_op"].notna() & (ops["correlation"] > 0)].drop_duplicates("correlation")
    joined = calls.merge(known[["correlation", "hlo_op", "hlo_module", "program_id"]], on="correlation")
    rows = joined[["hlo_module", "program_id", "hlo_op"]].to_numpy()
    names = [((f"{module}({program})", op), (module, op)) for module, program, op in rows]
    found = [phases.get(full, phases.get(plain)) for full, plain in names]
    is_looped = [full in in_loops or plain in in_loops for full, plain in names]
    joined = joined.assign(phase=pd.Series(found, index=joined.index, dtype="object"), is_looped=is_looped)
    return joined.sort_values(["thread", "start_ns"], ignore_index=True)


def host_ops(launched: pd.DataFrame) -> pd.DataFrame:
    """HLO operations as operators: neighbouring launches of one instruction on one thread."""
    if launched.empty:
        return pd.DataFrame()
    keys = launched[["thread", "hlo_op", "hlo_module"]]
    run = (keys != keys.shift()).any(axis=1).cumsum()
    groups = launched.groupby(run, sort=False)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    return spans.assign(name=groups["hlo_op"].first()).reset_index(drop=True)


def _modules(launched: pd.DataFrame) -> pd.DataFrame:
    """Runs of a module on a thread: one begins where the module changes, or launches its first instruction again.

    Its first one outside of loops, where it has such.
    """
    held = launched[launched["hlo_module"].notna()]
    if held.empty:
        return pd.DataFrame(columns=["start_ns", "end_ns", "name", "thread"])
    keys = held[["thread", "hlo_module", "program_id"]].astype("object")
    is_other = (keys != keys.shift()).any(axis=1)
    own = held.assign(once=held["hlo_op"].where(~held["is_looped"].astype(bool))).groupby(
        ["thread", "hlo_module"], sort=False
    )
    first = own["once"].transform("first").fillna(own["hlo_op"].transform("first"))
    is_again = (held["hlo_op"] == first) & (held["hlo_op"] != held["hlo_op"].shift())
    groups = held.groupby((is_other | is_again).cumsum(), sort=False)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    is_last = ~spans["thread"].duplicated(keep="last")  # what would have followed it is not known
    return spans.assign(name=groups["hlo_module"].first(), is_open=is_last).reset_index(drop=True)


def _phases(launched: pd.DataFrame) -> pd.DataFrame:
    """Neighbouring launches on a thread of what one phase of training was traced as: ranges `forward`, `backward`."""
    if launched["phase"].isna().all():
        return pd.DataFrame(columns=["start_ns", "end_ns", "name", "thread"])
    keys = launched[["thread", "phase"]].fillna("")
    run = (keys != keys.shift()).any(axis=1).cumsum()
    groups = launched[launched["phase"].notna()].groupby(run, sort=False)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    return spans.assign(name=groups["phase"].first()).reset_index(drop=True)


def _named(host: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    names = host["name"]
    mask: np.ndarray = names.isin([name for name in names.unique() if pattern.match(name)]).to_numpy(dtype=bool)
    return mask
