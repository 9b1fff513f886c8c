"""Arguments of communication kernels, from the compiled modules that the profiler keeps."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.kinds import collective
from traceanalyzer.readers.xplane import messages
from traceanalyzer.readers.xplane.events import integers
from traceanalyzer.readers.xplane.hlo import Collective, collectives, looped, operation, phases

Known = dict[tuple[str, str], Collective]


def modules(space: Any) -> Iterator[tuple[str, Any]]:
    """Each module's name (`jit_step`, and `jit_step(15)` with its program's number) and message.

    Damaged ones are left out: their kernels are told by their names then.
    """
    for plane in space.planes:
        keys = {entry.key for entry in plane.stat_metadata if entry.value.name in (b"hlo_proto", b"Hlo Proto")}
        for entry in plane.event_metadata if keys else ():
            for stat in entry.value.stats:
                if stat.metadata_id in keys and stat.bytes_value:
                    proto = _parsed(stat.bytes_value)
                    if proto is not None:
                        yield (entry.value.name or entry.value.display_name).decode(errors="replace"), proto


def _parsed(raw: bytes) -> Any:
    proto = messages.hlo()
    try:
        proto.ParseFromString(raw)
    except Exception:  # noqa: BLE001 - protobuf's own error, whose module is there only with protobuf
        return None
    return proto


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
    rows = np.flatnonzero((ops["kind"] == "comm").to_numpy() & ops["hlo_op"].notna().to_numpy())
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
            "group_description": [_description(one) for one in found],
            "dtype": [one.dtype if one else None for one in found],
            "size_bytes": integers(pd.Series([one.size_bytes if one else None for one in found], dtype="object")).array,
        }
    )


def _description(one: Collective | None) -> str | None:
    """`mesh_fsdp`, as PyTorch's device meshes call their groups."""
    return f"mesh_{'_'.join(one.axes)}" if one and one.axes else None


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
