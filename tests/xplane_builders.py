"""XSpace files for tests: planes of literals in, a file out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traceanalyzer.readers.xplane import messages

Event = tuple[str, int, int, Mapping[str, Any]]
"""Name, start and duration in ps, stats."""

EPOCH_NS = 1_700_000_000_000_000_000


def add_plane(space: Any, name: str, lines: Mapping[str, Sequence[Event]], **stats: Any) -> Any:
    """A plane; a line's number is the one in its name."""
    plane = space.planes.add(name=name.encode())
    names: dict[str, int] = {}
    keys: dict[str, int] = {}

    def put(stat: Any, key: str, value: Any) -> None:
        stat.metadata_id = keys.setdefault(key, len(keys) + 1)
        field = {int: "int64_value", bytes: "bytes_value"}.get(type(value), "str_value")
        setattr(stat, field, value.encode() if isinstance(value, str) else value)

    for line_name, line_events in lines.items():
        digits = "".join(character for character in line_name if character.isdigit())
        line = plane.lines.add(id=int(digits or 0), name=line_name.encode(), timestamp_ns=100)
        for event_name, start_ps, length_ps, event_stats in line_events:
            event = line.events.add(offset_ps=start_ps, duration_ps=length_ps)
            event.metadata_id = names.setdefault(event_name, len(names) + 1)
            for key, value in event_stats.items():
                put(event.stats.add(), key, value)
    for key, value in stats.items():
        put(plane.stats.add(), key, value)
    for event_name, number in names.items():
        plane.event_metadata.add(key=number).value.name = event_name.encode()
    for key, number in keys.items():
        plane.stat_metadata.add(key=number).value.name = key.encode()
    return plane


def add_module(
    space: Any, module: str, instructions: Sequence[Any], devices: int = 0, paths: Mapping[str, str] | None = None
) -> None:
    """A module with instructions of (name, opcode, dimensions, replica groups), of bfloat16; on so many devices.

    `paths` say where JAX traced instructions, by their names.
    """
    proto = messages.hlo()
    for device in range(devices):
        proto.module.device_assignment.computations.add(devices=[device])
    proto.module.name = module.encode()
    computation = proto.module.computations.add()
    for name, opcode, dimensions, groups in instructions:
        instruction = computation.instructions.add(name=name.encode(), opcode=opcode.encode())
        instruction.shape.element_type = 16
        instruction.shape.dimensions.extend(dimensions)
        instruction.metadata.op_name = (paths or {}).get(name, "").encode()
        for group in groups:
            instruction.replica_groups.add(replica_ids=group)
    plane = space.planes.add(name=b"/host:metadata")
    plane.stat_metadata.add(key=1).value.name = b"hlo_proto"
    entry = plane.event_metadata.add(key=1)
    entry.value.name = module.encode()
    entry.value.stats.add(metadata_id=1, bytes_value=proto.SerializeToString())


def launch(start: int, correlation: int, name: str = "cuLaunchKernelEx") -> Event:
    """An API call of 1 ns; `start` in ns."""
    return (name, start * 1000, 1000, {"correlation_id": correlation})


def kernel(start: int, end: int, correlation: int, name: str = "loop_fusion", **stats: Any) -> Event:
    """A GPU operation; times in ns."""
    details = {"kernel_details": "regs:32 grid:4,2,1 block:128,1,1 occ_pct:100"}
    return (name, start * 1000, (end - start) * 1000, {"correlation_id": correlation} | details | stats)


def step(module: str = "jit_train_step") -> list[Event]:
    """Two runs of a module of a product and an all-reduce, on one GPU."""
    own = {"hlo_module": module, "program_id": 3}
    product, reduce = own | {"hlo_op": "dot.1"}, own | {"hlo_op": "all-reduce-start.2"}
    nccl = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
    return [
        kernel(100, 150, 1, **product), kernel(150, 250, 2, nccl, **reduce),
        kernel(300, 350, 3, **product), kernel(350, 450, 4, nccl, **reduce),
    ]  # fmt: skip


def write(
    path: Path, gpus: int = 2, steps: Sequence[Event] = (), api_plane: str = "", job: tuple[int, int] | None = None,
    paths: Mapping[str, str] | None = None, rows: int = 1024, program: Sequence[Event] = (),
    later: Sequence[Event] = (),
) -> Path:  # fmt: skip
    """A process with GPUs that run the same two steps, each launched by a thread of its own.

    With a job, the first GPU's number in it and how many it has, the host says which GPUs are its own. The all-reduce is
    of so many `rows`; `program` are events of a thread that launches nothing, and `later` the first GPU's that follow.
    """
    space = messages.space()
    first, devices = job or (0, 0)
    groups = [] if job else [[0, 1]]
    reduce = ("all-reduce-start.2", "all-reduce-start", [rows, 8], groups)
    add_module(space, "jit_train_step(3)", [reduce], devices, paths)
    threads: dict[str, Sequence[Event]] = {"Program 99": program} if program else {}
    apis = {}
    for number in range(gpus):
        moved = [(n, s, d, stats | {"correlation_id": stats["correlation_id"] + 10 * number})
                 for n, s, d, stats in step()]  # fmt: skip
        copy = ("MemcpyH2D", 460_000, 10_400, {"memcpy_details": "kind_src:pinned kind_dst:device size:64 async:1"})
        lines = {
            f"Stream #{7 + number}(Compute,MemcpyH2D)": [*moved, copy, *(() if number else later)],
            "XLA Ops": moved,
        }
        add_plane(space, f"/device:GPU:{number}", lines)
        calls = [launch(50 * i, i + 10 * number) for i in range(1, 5)]
        own = [("Execute", 0, 1000, {"global_device_id": first + number})] if job else []
        threads[f"Host Threads/{number + 1}"] = [*(() if api_plane else calls), *own, *(steps if not number else ())]
        apis[f"Host Threads/{number + 1}"] = calls
    add_plane(space, "/host:CPU", threads)
    if api_plane:
        add_plane(space, api_plane, apis)
    add_plane(space, "Task Environment", {}, profile_start_time=EPOCH_NS, profile_stop_time=EPOCH_NS + 1000)
    path.write_bytes(space.SerializeToString())
    return path
