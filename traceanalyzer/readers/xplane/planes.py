"""An XSpace file: its planes, and a rank for each GPU of them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from google.protobuf.message import DecodeError

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import MEMORIES, KindRules, collective
from traceanalyzer.meaning.names import runtime_activity
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.model.schema import XLA_MODULES, XLA_PHASES, printable
from traceanalyzer.readers.base import DEVICE_NUMBER, DEVICE_ORDER, Header, RankHint
from traceanalyzer.readers.xplane import messages
from traceanalyzer.readers.xplane.messages import Collective, collectives, devices_of, looped, operation, phases

_GPU_PLANE = re.compile(r"^/device:GPU:(\d{1,9})(?!\d)")

_OTHER_DEVICE = re.compile(r"^/device:(?!CUSTOM)(\w+):\d+")

_HOST_PLANES = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER", "/host:python-tracer")
"""Threads and what runs on them; files that the profiler did not finish keep API calls apart."""

_EPOCH_LEAST_NS = 10**18
"""A line whose times begin later is in times of day already."""


def peek(path: Path) -> Header:
    """When the capture began and ended, where the file says so; see `Reader.peek`."""
    space = _space(path)
    in_use = [number for number, plane in _gpu_planes(space, path).items() if any(line.events for line in plane.lines)]
    numbers = device_numbers(space, len(in_use))
    size, stop = _world_size(space, numbers), _stamp(space, "profile_stop_time")
    return Header(ranks=numbers, world_size=size, start_ns=_start_ns(space), end_ns=stop)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file, in order; see `Reader.read`."""
    space = _space(path)
    planes = _gpu_planes(space, path)
    start_ns = _start_ns(space) or 0
    devices = {number: gpu_ops(plane, rules, _offset_ns(plane, start_ns)) for number, plane in planes.items()}
    devices = {number: ops.reset_index(drop=True) for number, ops in devices.items() if len(ops)}
    if not devices:
        raise NotATraceError(f"{path}: no GPU operations; profile with host_tracer_level ≥ 1 and device tracing on")
    own = [(plane, _offset_ns(plane, start_ns)) for plane in space.planes if text_of(plane.name) in _HOST_PLANES]
    host = read_host(own)
    known, phases, in_loops = described(space)
    numbers = device_numbers(space, len(devices))
    ranks = numbers or tuple(range(hint.rank, hint.rank + len(devices)))
    world_size = _world_size(space, numbers)
    all_ops = pd.concat(devices.values())
    calls = api_calls(host, set(all_ops["correlation"]) - {-1})
    for index, (number, ops) in enumerate(devices.items()):
        others = set(all_ops["correlation"]) - set(ops["correlation"]) - {-1}
        of_device = _of_device(host, ops, others)
        own_calls = calls.loc[calls.index.intersection(of_device.index)]
        launched = launches(own_calls, ops, phases, in_loops)
        source = DEVICE_NUMBER if numbers else DEVICE_ORDER if len(devices) > 1 else hint.source
        meta = RankMeta(
            rank=ranks[index],
            rank_source=source,
            files=(printable(path.name),),
            format="xplane",
            world_size=world_size,
            device=number,
            device_name=_text(stats_of(planes[number]).get("gpu_device_name")),
            device_bytes=_positive(stats_of(planes[number]).get("memory_size")),
            capture_start_ns=_start_ns(space),
            capture_end_ns=_stamp(space, "profile_stop_time"),
            notes=()
            if len(devices) == 1
            else (f"One process drives {len(devices)} GPUs: what its other threads do is shown with each.",),
        )
        yield make_trace(
            meta,
            process_ops=all_ops["correlation"],
            rules=rules,
            gpu_ops=ops,
            api_calls=own_calls,
            host_ops=host_ops(launched),
            ranges=ranges(of_device, calls, launched),
            frames=frames(of_device),
            comm_args=comm_args(ops, known, ranks, index, is_whole_job=bool(numbers)),
        )


def device_numbers(space: Any, count: int) -> tuple[int, ...] | None:
    """The numbers in the whole job of the GPUs that the file holds, in order; `None` where it does not say.

    Args:
        space: the file.
        count: how many GPUs it holds. Numbers of more or fewer cannot be given to them.
    """
    found = set()
    for plane in space.planes:
        keys = {entry.key for entry in plane.stat_metadata if entry.value.name == b"global_device_id"}
        for line in plane.lines if keys else ():
            for event in line.events:
                found |= {value_of(stat, {}) for stat in event.stats if stat.metadata_id in keys}
    numbers = tuple(sorted(one for one in found if isinstance(one, int) and 0 <= one < RANKS))
    return numbers if len(numbers) == count and count else None


def _world_size(space: Any, numbers: tuple[int, ...] | None) -> int | None:
    """Of the program on most devices, where the file says which of them are its own."""
    sizes = [len(devices_of(proto)) for _, proto in modules(space)] if numbers else []
    size = max(sizes, default=0)
    return size if numbers and size > max(numbers) else None


def _space(path: Path) -> Any:
    space = messages.space()
    try:
        space.ParseFromString(path.read_bytes())
    except OSError as error:
        raise NotATraceError(f"{path}: cannot be read ({error.strerror})") from error
    except DecodeError as error:
        raise NotATraceError(f"{path}: no XSpace message, or a damaged one ({error})") from error
    return space


def _gpu_planes(space: Any, path: Path) -> dict[int, Any]:
    found = {int(match[1]): plane for plane in space.planes if (match := _GPU_PLANE.match(text_of(plane.name)))}
    if not found:
        other = next((match[1] for plane in space.planes if (match := _OTHER_DEVICE.match(text_of(plane.name)))), None)
        what = (
            f"a capture of {other}s, which are not read: only GPUs are"
            if other
            else "no plane of a GPU: the program ran on CPUs alone, or the profiler could not trace its GPUs"
        )
        raise NotATraceError(f"{path}: {what}")
    return dict(sorted(found.items()))


def _stamp(space: Any, name: str) -> int | None:
    for plane in space.planes:
        if text_of(plane.name) == "Task Environment":
            value = stats_of(plane).get(name)
            return value if isinstance(value, int) and 0 < value <= LATEST_NS else None
    return None


def _start_ns(space: Any) -> int | None:
    return _stamp(space, "profile_start_time")


def _offset_ns(plane: Any, start_ns: int) -> int:
    """What makes times of day of the plane's: nothing where they are such, else the profile's start."""
    first = min((line.timestamp_ns for line in plane.lines), default=0)
    return 0 if first > _EPOCH_LEAST_NS else start_ns


def _of_device(host: pd.DataFrame, ops: pd.DataFrame, others: set[int]) -> pd.DataFrame:
    """The host's events without the threads that launch on other GPUs alone: XLA has one for each GPU."""
    launches_here = set(host.loc[host["correlation"].isin(ops["correlation"]), "thread"])
    launches_there = set(host.loc[host["correlation"].isin(others), "thread"])
    return host[~host["thread"].isin(launches_there - launches_here)]


def _text(value: Any) -> str | None:
    return printable(value) if isinstance(value, str) and value else None


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 < value <= LATEST_NS else None


# Events of a plane's lines as a table: times in ns, names, and the stats that are used.


_PS_A_NS = 1000

STATS = (
    "correlation_id", "hlo_op", "hlo_module", "program_id", "kernel_details", "memcpy_details", "memset_details",
    "step_num", "device_id", "global_device_id",
)  # fmt: skip

_COLUMNS = ("name", "line", "start_ns", "end_ns", *STATS)


def events(plane: Any, wanted: Callable[[str], bool], offset_ns: int) -> pd.DataFrame:
    """The events of the lines whose name is wanted; a stat that an event has not is `None`.

    Times are picoseconds from the line's start: start and end are each rounded to the nanosecond once.
    """
    names = {
        entry.key: text_of(entry.value.display_name or entry.value.name).removesuffix(".kd")
        for entry in plane.event_metadata
    }
    keys = _stat_names(plane)
    used = {key: name for key, name in keys.items() if name in STATS}
    shared = {entry.key: _stats(entry.value.stats, used, keys) for entry in plane.event_metadata if entry.value.stats}
    rows = [
        (
            names.get(event.metadata_id, ""),
            line.id,
            _time(line.timestamp_ns + offset_ns),
            event.offset_ps,
            event.duration_ps,
            shared.get(event.metadata_id, {}) | _stats(event.stats, used, keys),
        )
        for line in plane.lines
        if wanted(text_of(line.name))
        for event in line.events
    ]
    return _table(rows)


def integers(values: pd.Series) -> pd.Series:
    """Whole numbers of 62 bits; what is none, or larger, is absent."""
    found = [value if isinstance(value, int) and abs(value) < 1 << 62 else None for value in values]
    return pd.Series(pd.array(found, dtype="Int64"), index=values.index)


def _time(time_ns: int) -> int:
    return time_ns if abs(time_ns) <= LATEST_NS else UNKNOWN_NS


def stats_of(plane: Any) -> dict[str, Any]:
    """The plane's own stats, by name."""
    keys = _stat_names(plane)
    return _stats(plane.stats, keys, keys)


def _stat_names(plane: Any) -> dict[int, str]:
    return {entry.key: text_of(entry.value.name) for entry in plane.stat_metadata}


def _table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype="object") for name in _COLUMNS})
    name, line, base, offset, duration, stats = zip(*rows, strict=True)
    first, length = np.array(offset, dtype=np.int64), np.array(duration, dtype=np.int64)
    start_ns = np.array(base, dtype=np.int64)
    table = {
        "name": list(name),
        "line": np.array(line, dtype=np.int64),
        "start_ns": start_ns + _rounded(first),
        "end_ns": start_ns + _rounded(first + length),
    }
    return pd.DataFrame(table | {key: pd.Series([one.get(key) for one in stats], dtype="object") for key in STATS})


def _rounded(time_ps: np.ndarray) -> np.ndarray:
    rounded: np.ndarray = (time_ps + _PS_A_NS // 2) // _PS_A_NS
    return rounded


def _stats(stats: Iterable[Any], used: Mapping[int, str], texts: Mapping[int, str]) -> dict[str, Any]:
    return {used[stat.metadata_id]: value_of(stat, texts) for stat in stats if stat.metadata_id in used}


def value_of(stat: Any, texts: Mapping[int, str]) -> Any:
    """What a stat says; `texts` are those that it may refer to."""
    for field in ("uint64_value", "int64_value", "double_value"):
        if stat.HasField(field):
            return getattr(stat, field)
    if stat.HasField("ref_value"):
        return texts.get(stat.ref_value)
    return text_of(stat.str_value) if stat.HasField("str_value") else None


def text_of(raw: bytes) -> str:
    """A text of the file; what is not UTF-8 in it stands as replacement characters."""
    return raw.decode(errors="replace")


# GPU operations of one device plane: kernels, copies and memsets, with the HLO instruction behind each.


# Lines of other names repeat the streams' events by step, module and HLO operation.
_STREAM = re.compile(r"^Stream\b.*?#?(\d{1,18})")

_COPY = re.compile(r"^Memcpy([HDP])2([HDP])")


def gpu_ops(plane: Any, rules: KindRules, offset_ns: int) -> pd.DataFrame:
    """Columns of `schema.GPU_OPS`, `hlo_op`, `hlo_module`, `program_id`, and whether each is communication."""
    found = events(plane, lambda line: bool(_STREAM.match(line)), offset_ns)
    streams = {line.id: _number(line) for line in plane.lines}
    details = [_texts(found[name]) for name in ("kernel_details", "memcpy_details", "memset_details")]
    names = found["name"].astype("object")
    activities = names.map({name: _activity(name) for name in names.unique()})
    ways = names.map({name: _direction(name) for name in names.unique()}).astype("object")
    memories = details[1].map(_memories, na_action="ignore")
    sources = _either(memories.str[0], ways.str[0].map(MEMORIES))
    targets = _either(memories.str[1], ways.str[-1].map(MEMORIES))
    shown = [_shown(*row) for row in zip(names, ways, sources, targets, strict=True)]
    kinds = {pair: rules.kind(*pair) for pair in set(zip(shown, activities, strict=True))}
    return found.assign(
        name=shown,
        activity=activities,
        is_comm=[kinds[pair] == "comm" for pair in zip(shown, activities, strict=True)],
        stream=found["line"].map(streams),
        correlation=integers(found["correlation_id"]).fillna(-1).astype("int64"),
        bytes=_sizes(
            _either(_parts(details[1], r"\bsize:(\d{1,18})\b"), _parts(details[2], r"\bnum_bytes:(\d{1,18})\b"))
        ),
        grid=_parts(details[0], r"\bgrid:([\d,]+)").str.replace(",", "x"),
        block=_parts(details[0], r"\bblock:([\d,]+)").str.replace(",", "x"),
    ).drop(columns=["line", "correlation_id", "kernel_details", "memcpy_details", "memset_details"])


def _number(line: Any) -> int:
    match = _STREAM.match(text_of(line.name))
    return int(match[1]) if match else int(line.id)


def _activity(name: str) -> str:
    if name.startswith("Memcpy"):
        return "memcpy"
    return "memset" if name.startswith("Memset") else runtime_activity(name) or "kernel"


def _direction(name: str) -> str | None:
    match = _COPY.match(name)
    return f"{match[1]}to{match[2]}" if match else None


def _memories(details: str) -> tuple[str | None, str | None]:
    """`kind_src:pinned kind_dst:device …`; unknown ones are absent."""
    found = [re.search(rf"\bkind_{end}:(\w+)", details) for end in ("src", "dst")]
    source, target = (match[1].capitalize() if match and match[1] != "unknown" else None for match in found)
    return source, target


def _shown(name: str, way: str | None, source: str | None, target: str | None) -> str:
    """A copy as PyTorch names it."""
    return f"Memcpy {way} ({source} -> {target})" if isinstance(way, str) else name


def _parts(details: pd.Series, pattern: str) -> pd.Series:
    """The first group of each distinct text; absent where it is not there."""
    found = {text: match[1] for text in details.dropna().unique() if (match := re.search(pattern, text))}
    return details.map(found).astype("object")


def _texts(values: pd.Series) -> pd.Series:
    """Texts; what is none is absent."""
    return pd.Series(
        [value if isinstance(value, str) else None for value in values], index=values.index, dtype="object"
    )


def _either(one: pd.Series, other: pd.Series) -> pd.Series:
    first = one.astype("object")
    return first.where(first.notna(), other.astype("object"))


def _sizes(texts: pd.Series) -> pd.Series:
    found = [int(text) if isinstance(text, str) else None for text in texts]
    return integers(pd.Series(found, index=texts.index, dtype="object"))


# What the host plane holds: API calls, the HLO operations and modules that they launch, steps, ranges, frames.


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
    found = pd.concat(tables, ignore_index=True) if tables else _table([])
    correlation = integers(found["correlation_id"]).fillna(-1).astype("int64")
    return found.assign(
        name=found["name"].astype("object"), thread=found["line"].astype("int64"), correlation=correlation
    )


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
    return _spans(launched, _begins(launched[["thread", "hlo_op", "hlo_module"]]), "hlo_op")


def _begins(keys: pd.DataFrame) -> pd.Series:
    """Where rows differ from the one before."""
    return (keys != keys.shift()).any(axis=1)


def _spans(launched: pd.DataFrame, begins: pd.Series, name: str) -> pd.DataFrame:
    """A range for each run of launches, from where one begins, with the first one's thread and name."""
    groups = launched.groupby(begins.cumsum(), sort=False)
    spans = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first"))
    return spans.assign(name=groups[name].first()).reset_index(drop=True)


def _modules(launched: pd.DataFrame) -> pd.DataFrame:
    """Runs of a module on a thread: one begins where the module changes, or launches its first instruction again.

    Its first one outside of loops, where it has such.
    """
    held = launched[launched["hlo_module"].notna()]
    if held.empty:
        return pd.DataFrame(columns=["start_ns", "end_ns", "name", "thread"])
    is_other = _begins(held[["thread", "hlo_module", "program_id"]].astype("object"))
    own = held.assign(once=held["hlo_op"].where(~held["is_looped"].astype(bool))).groupby(
        ["thread", "hlo_module"], sort=False
    )
    first = own["once"].transform("first").fillna(own["hlo_op"].transform("first"))
    is_again = (held["hlo_op"] == first) & (held["hlo_op"] != held["hlo_op"].shift())
    spans = _spans(held, is_other | is_again, "hlo_module")
    return spans.assign(is_open=~spans["thread"].duplicated(keep="last"))  # what would have followed is not known


def _phases(launched: pd.DataFrame) -> pd.DataFrame:
    """Neighbouring launches on a thread of what one phase of training was traced as: ranges `forward`, `backward`."""
    if launched["phase"].isna().all():
        return pd.DataFrame(columns=["start_ns", "end_ns", "name", "thread"])
    begins = _begins(launched[["thread", "phase"]].fillna(""))
    # Launches of no phase end a run, and are in none.
    held = launched[launched["phase"].notna()]
    return _spans(held, begins.cumsum()[held.index].diff().ne(0), "phase")


def _named(host: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    names = host["name"]
    mask: np.ndarray = names.isin([name for name in names.unique() if pattern.match(name)]).to_numpy(dtype=bool)
    return mask


# Arguments of communication kernels, from the compiled modules that the profiler keeps.


Known = dict[tuple[str, str], Collective]


def modules(space: Any) -> Iterator[tuple[str, Any]]:
    """Each module's name (`jit_step`, and `jit_step(15)` with its program's number) and message.

    Damaged ones are left out: their kernels are then known by name only.
    """
    for plane in space.planes:
        keys = {entry.key for entry in plane.stat_metadata if entry.value.name in (b"hlo_proto", b"Hlo Proto")}
        for entry in plane.event_metadata if keys else ():
            for stat in entry.value.stats:
                if stat.metadata_id in keys and stat.bytes_value:
                    proto = messages.hlo()
                    with suppress(DecodeError):
                        proto.ParseFromString(stat.bytes_value)
                        yield (entry.value.name or entry.value.display_name).decode(errors="replace"), proto


def described(space: Any) -> tuple[Known, dict[tuple[str, str], str], set[tuple[str, str]]]:
    """Collectives, and phases of training, by module and instruction; and which of these are in loops."""
    known: Known = {}
    phase_of: dict[tuple[str, str], str] = {}
    in_loops: set[tuple[str, str]] = set()
    for module, proto in modules(space):
        known |= {(module, name): one for name, one in collectives(proto)}
        phase_of |= {(module, name): phase for name, phase in phases(proto)}
        in_loops |= {(module, name) for name in looped(proto)}
    return known, phase_of, in_loops


def comm_args(ops: pd.DataFrame, known: Known, ranks: Sequence[int], index: int, *, is_whole_job: bool) -> pd.DataFrame:
    """Arguments of communication kernels from the instruction that each carries out.

    Args:
        ops: of one GPU.
        known: collectives by module and instruction.
        ranks: of the file's GPUs.
        index: the GPU's place among them.
        is_whole_job: ranks are the numbers of devices in the whole job, else those of this file's GPUs.
    """
    rows = np.flatnonzero(ops["is_comm"].to_numpy(dtype=bool) & ops["hlo_op"].notna().to_numpy())
    held = ops.iloc[rows]
    found = [_instruction(known, *row) for row in held[["hlo_module", "program_id", "hlo_op", "name"]].to_numpy()]
    groups = [one.groups if one else () for one in found]
    members = [_members(own, ranks, index, is_whole_job=is_whole_job) for own in groups]
    size = [len(own[0]) if own and len({*map(len, own)}) == 1 else None for own in groups]
    names = zip(found, held["hlo_op"].astype(str), held["name"].astype(str), strict=True)
    return pd.DataFrame(
        {
            "gpu_op": rows,
            "start_ns": held["start_ns"].to_numpy(),
            "end_ns": held["end_ns"].to_numpy(),
            "thread": -1,
            "collective": [one.name if one else operation(op) or collective(name) for one, op, name in names],
            "group_size": pd.array(size, dtype="Int64"),
            "group": pd.Series(members, dtype="object"),
            "group_ranks": pd.Series(members, dtype="object"),
            "group_description": [f"mesh_{'_'.join(one.axes)}" if one and one.axes else None for one in found],
            "dtype": [one.dtype if one else None for one in found],
            "size_bytes": integers(pd.Series([one.size_bytes if one else None for one in found], dtype="object")).array,
        }
    )


def _instruction(known: Known, module: str, program: Any, op: str, kernel: str) -> Collective | None:
    """The instruction of a kernel; of one inside a graph what all of the module's of its operation have in common."""
    for name in (f"{module}({program})", str(module)):
        if (name, op) in known:
            return known[name, op]
    wanted = collective(kernel)
    for name in (f"{module}({program})", str(module)):
        alike = [one for (of, _), one in known.items() if of == name and one.name == wanted]
        if alike and len({one.groups for one in alike}) == 1:
            same = {(one.dtype, one.size_bytes) for one in alike}
            dtype, size = same.pop() if len(same) == 1 else (None, None)
            axes = {one.axes for one in alike}
            return Collective(alike[0].name, alike[0].groups, dtype, size, axes.pop() if len(axes) == 1 else ())
    return None


def _members(groups: Sequence[tuple[int, ...]], ranks: Sequence[int], index: int, *, is_whole_job: bool) -> str | None:
    """The ranks of a GPU's group; where devices have no numbers of the job, only if this file holds all of them."""
    if not groups or (not is_whole_job and max(map(max, groups)) >= len(ranks)):
        return None
    own = ranks[index] if is_whole_job else index
    group = next((group for group in groups if own in group), None)
    return ",".join(str(one if is_whole_job else ranks[one]) for one in group) if group else None
