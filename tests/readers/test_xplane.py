"""JAX's XSpace files: streams, HLO operations, modules, steps, collectives, several GPUs."""

import pandas as pd
import pytest

from tests import xplane_builders as build
from traceanalyzer.analyses import run
from traceanalyzer.analyses.communication import calls as communication_calls
from traceanalyzer.discovery import discover
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading import load
from traceanalyzer.readers import RankHint, reader_of, xplane
from traceanalyzer.readers.xplane import messages, planes
from traceanalyzer.readers.xplane.messages import collectives, looped

FILES = [(xplane, lambda folder: build.write(folder / "a.xplane.pb"))]

START = build.EPOCH_NS + 100


def read(path):
    return list(xplane.read(path, RankHint(0, "file order"), KindRules()))


@pytest.fixture
def traces(tmp_path):
    return read(build.write(tmp_path / "host.xplane.pb"))


def test_each_gpu_is_a_rank_at_times_of_day(tmp_path, traces):
    path = tmp_path / "host.xplane.pb"
    assert reader_of(path) is xplane
    assert (xplane.peek(path).start_ns, xplane.peek(path).end_ns) == (build.EPOCH_NS, build.EPOCH_NS + 1000)
    assert [(trace.rank, trace.meta.device) for trace in traces] == [(0, 0), (1, 1)]
    assert (traces[0].gpu_ops["start_ns"] - START).tolist() == [100, 150, 300, 350, 460]


def test_picoseconds_are_rounded_once(traces):
    copy = traces[0].gpu_ops.iloc[4]
    assert copy["end_ns"] - START == 470


def test_streams_are_read_and_the_lines_that_repeat_them_are_not(traces):
    ops = traces[1].gpu_ops
    assert (len(ops), ops["stream"].unique().tolist()) == (5, [8])
    assert (ops["grid"][0], ops["block"][0]) == ("4x2x1", "128x1x1")
    assert ops["name"][4] == "Memcpy HtoD (Pinned -> Device)"
    assert (ops["kind"][4], ops["bytes"][4]) == ("copy", 64)


def test_hlo_operations_are_operators_of_the_thread_that_launches_for_the_gpu(traces):
    for trace in traces:
        assert trace.host_ops["name"].tolist() == ["dot.1", "all-reduce-start.2"] * 2
        assert trace.gpu_ops["launch"].tolist() == [0, 1, 2, 3, -1]
        assert trace.api_calls["thread"].unique().tolist() == [trace.rank + 1]


@pytest.mark.parametrize("plane", ["/host:CUPTI", "/host:ROCTRACER"])
def test_api_calls_may_have_a_plane_of_their_own(tmp_path, plane):
    trace = read(build.write(tmp_path / "a.xplane.pb", api_plane=plane))[0]
    assert trace.gpu_ops["launch"].tolist() == [0, 1, 2, 3, -1]


@pytest.mark.parametrize(
    ("launched", "in_loops", "begins"),
    [
        ("abcabc", "", [0, 3]),
        ("llolloll", "l", [0, 2, 5]),  # layers in a scan: `o` once a run, of which the first began before the capture
        ("llll", "l", [0]),  # the same instruction beside itself is one
        ("lmlm", "lm", [0, 2]),  # without an instruction outside of loops, a run's first one
    ],
)
def test_what_a_loop_repeats_is_no_run_of_a_module(launched, in_loops, begins):
    calls = pd.DataFrame({"start_ns": range(len(launched)), "thread": 1, "correlation": range(1, len(launched) + 1)})
    calls["end_ns"] = calls["start_ns"] + 1
    ops = calls.assign(hlo_op=[*launched], hlo_module="jit_step", program_id="3")
    found = planes.launches(calls, ops, {}, {("jit_step", name) for name in in_loops})
    assert planes.ranges(planes.read_host([]), planes.read_host([]), found)["start_ns"].tolist() == begins


def test_a_module_s_loops_hold_what_their_bodies_call():
    proto = messages.hlo()
    for number, (name, opcode, called) in enumerate(
        [("dot.1", b"fusion", ()), ("while.2", b"while", (2, 3)), ("call.3", b"call", (4,)), ("lt.4", b"compare", ()),
         ("gemm.5", b"fusion", ())],
    ):  # fmt: skip
        computation = proto.module.computations.add(id=number)
        computation.instructions.add(name=name.encode(), opcode=opcode, called=called)
    assert sorted(looped(proto)) == ["call.3", "gemm.5", "lt.4"]


def test_annotated_steps_have_their_number(tmp_path):
    steps = [("train", 40_000, 100_000, {"step_num": 5}), ("$model.py:12 forward", 41_000, 1_000, {}),
             ("load_batch", 45_000, 1_000, {})]  # fmt: skip
    trace = read(build.write(tmp_path / "a.xplane.pb", steps=steps))[0]
    assert {"step_5", "load_batch"} <= set(trace.ranges["name"])
    assert trace.frames["name"].tolist() == ["model.py(12): forward"]


def test_calls_that_are_named_after_what_they_launch_are_launches(tmp_path, monkeypatch):
    """Newer profilers write `nvjet_…` and `Memset` for the call: only its correlation id says what it is."""
    named = build.launch
    monkeypatch.setattr(
        build, "launch", lambda start, correlation: named(start, correlation, "ncclDevKernel_AllReduce")
    )
    frames = [("$time sleep", 41_000, 1_000, {}), ("load_batch", 45_000, 1_000, {"correlation_id": 99})]
    trace = read(build.write(tmp_path / "a.xplane.pb", steps=frames))[0]
    assert trace.gpu_ops["launch"].tolist() == [0, 1, 2, 3, -1]
    assert trace.api_calls["name"].unique().tolist() == ["Launch"]
    assert set(trace.ranges["name"]) == {"jit_train_step", "load_batch"}
    assert trace.frames.empty


@pytest.mark.parametrize(
    ("path", "phase", "role"),
    [
        ("jit(step)/transpose(jvp(Block))/rematted_computation/dot_general", "backward", "data parallel"),
        ("jit(step)/jvp(Block)/dot_general", "forward", "tensor parallel"),
        ("jit(step)/optimizer/sub", "unattributed", None),
        ("jit(step)/transpose", "unattributed", None),
    ],
)
def test_where_jax_traced_a_collective_tells_its_phase_and_what_its_group_is_for(tmp_path, path, phase, role):
    step = ("train", 0, 255_000, {"step_num": 0})
    build.write(tmp_path / "a.xplane.pb", steps=[step], paths={"all-reduce-start.2": path}, rows=1 << 14)
    results = run(load(tmp_path).ranks, ["groups", "phases"])
    phases = results["phases"].table
    assert set(phases.loc[phases["exposed_comm_ns"] > 0, "phase"]) == {phase}
    assert results["groups"].to_frame()["role"].fillna("").tolist() == [role or ""]


def test_a_loader_on_the_program_s_thread_is_what_the_gpus_wait_for(tmp_path):
    """JAX's runtime launches on threads of its own, which record nothing meanwhile."""
    far = 10_000_000
    late = [(name, begin + far, length, {**stats, "correlation_id": stats["correlation_id"] + 100})
            for name, begin, length, stats in build.step()]  # fmt: skip
    launches = [build.launch(far // 1000 + 50 * number, 100 + number) for number in range(1, 5)]
    program = [("train", 0, 255_000, {"step_num": 0}), ("train", 260_000, 2 * far, {"step_num": 1}),
               ("load_batch", 600_000, far - 700_000, {})]  # fmt: skip
    build.write(tmp_path / "a.xplane.pb", gpus=1, program=program, later=late, steps=launches)
    idle = run(load(tmp_path).ranks, ["idle"])["idle"].table
    assert idle["data_ns"].max() == far // 1000 - 700  # of the whole 9,550 ns until the next launch


def test_a_collective_is_told_by_its_instruction(traces):
    table = communication_calls.per_rank(traces[1])
    assert table["collective"].tolist() == ["all_reduce"] * 2
    assert table["size_bytes"].tolist() == [1024 * 8 * 2] * 2
    assert table[["dtype", "group_ranks", "group_size"]].iloc[0].tolist() == ["bfloat16", "0,1", 2]


def test_groups_in_their_short_form():
    proto = messages.hlo()
    instruction = proto.module.computations.add().instructions.add(name=b"ag", opcode=b"all-gather-start")
    for dimensions in ([16], [64]):
        instruction.shape.tuple_shapes.add(element_type=11).dimensions.extend(dimensions)
    iota = instruction.device_list.iota
    iota.groups, iota.devices = 2, 4
    iota.dims.extend([4, 2])
    iota.order.extend([1, 0])
    ((_, found),) = collectives(proto)
    assert found.groups == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert (found.size_bytes, found.dtype) == (256, "float32")


def test_a_reduce_scatter_s_size_is_its_input():
    proto = messages.hlo()
    instruction = proto.module.computations.add().instructions.add(name=b"rs", opcode=b"reduce-scatter")
    instruction.shape.element_type = 11
    instruction.shape.dimensions.extend([8])
    instruction.replica_groups.add(replica_ids=[0, 1, 2, 3])
    ((_, found),) = collectives(proto)
    assert found.size_bytes == 8 * 4 * 4


def test_what_cannot_be_read_says_why(tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(NotATraceError, match="no XSpace message"):
        xplane.peek(path)
    space = messages.space()
    build.add_plane(space, "/device:TPU:0", {})
    path.write_bytes(space.SerializeToString())
    with pytest.raises(NotATraceError, match="a capture of TPUs"):
        xplane.peek(path)
    space.planes[0].name = b"/host:CPU"
    path.write_bytes(space.SerializeToString())
    with pytest.raises(NotATraceError, match="on CPUs alone"):
        xplane.peek(path)


@pytest.mark.parametrize(
    ("sizes", "axes", "expected"),
    [
        ([4], [(0, None)], ((0, 1, 2, 3),)),
        ([2, 2], [(1, None)], ((0, 1), (2, 3))),
        ([2, 2], [(0, None)], ((0, 2), (1, 3))),
        ([4], [(0, (1, 2))], ((0, 2), (1, 3))),
        ([4], [(0, (2, 2))], ((0, 1), (2, 3))),
        ([4], [(0, (3, 2))], ((0, 1, 2, 3),)),  # makes no sense: that of all devices of the module
    ],
)
def test_groups_along_the_axes_of_a_mesh(sizes, axes, expected):
    proto = messages.hlo()
    for device in range(4):
        proto.module.device_assignment.computations.add(devices=[device])
    instruction = proto.module.computations.add().instructions.add(name=b"ar", opcode=b"all-reduce")
    instruction.shape.element_type = 11
    for number, size in enumerate(sizes):
        instruction.mesh_axes.mesh.axes.add(name=b"axis_%d" % number, size=size)
    for axis, part in axes:
        own = instruction.mesh_axes.axes.add(axis=axis)
        if part:
            own.part.before, own.part.size = part
    ((_, found),) = collectives(proto)
    assert found.groups == expected


@pytest.mark.parametrize("opcode", [b"async-start", b"fusion"])
def test_a_collective_inside_what_starts_or_fuses_it(opcode):
    proto = messages.hlo()
    inner = proto.module.computations.add(id=7).instructions.add(name=b"ag.1", opcode=b"all-gather")
    inner.shape.element_type = 16
    inner.shape.dimensions.extend([4, 2])
    proto.module.computations.add(id=8).instructions.add(name=b"add.1", opcode=b"add")
    main = proto.module.computations.add(id=9).instructions
    main.add(name=b"wrapped.1", opcode=opcode).called.append(7)
    main.add(name=b"plain.1", opcode=opcode).called.append(8)
    found = dict(collectives(proto))
    assert set(found) == {"ag.1", "wrapped.1"}
    assert (found["wrapped.1"].name, found["wrapped.1"].size_bytes) == ("all_gather", 16)


@pytest.mark.parametrize(
    ("names", "axis", "role"), [(("data", "model"), 1, "tensor parallel"), (("axis_0", "axis_1"), 1, None)]
)
def test_a_mesh_s_axis_names_its_groups(tmp_path, monkeypatch, names, axis, role):
    added = build.add_module

    def with_mesh(space, *arguments, **others):
        added(space, *arguments, **others)
        stat = space.planes[-1].event_metadata[0].value.stats[0]
        proto = messages.hlo()
        proto.ParseFromString(stat.bytes_value)
        for instruction in proto.module.computations[0].instructions:
            del instruction.replica_groups[:]
            for name in names:
                instruction.mesh_axes.mesh.axes.add(name=name.encode(), size=2)
            instruction.mesh_axes.axes.add(axis=axis)
        stat.bytes_value = proto.SerializeToString()

    monkeypatch.setattr(build, "add_module", with_mesh)
    build.write(tmp_path / "a.xplane.pb", gpus=4)
    groups = run(load(tmp_path).ranks, ["groups"])["groups"].to_frame()
    assert sorted(groups["group_ranks"]) == ["0,1", "2,3"]
    assert groups["role"].fillna("").tolist() == [role or ""] * 2


def test_two_processes_of_one_job_say_which_gpus_are_theirs(tmp_path):
    for process in (0, 1):
        folder = tmp_path / f"p{process}" / "plugins" / "profile" / "2026_01_01_00_00_00"
        folder.mkdir(parents=True)
        build.write(folder / "vm.xplane.pb", job=(2 * process, 4))
        (folder / "vm.trace.json").write_text(
            '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a", "pid": 1}]}'
        )
    (run,) = discover(tmp_path).runs
    assert [capture.ranks for capture in run.captures] == [(0, 1), (2, 3)]
    job = [trace for capture in run.captures for trace in read(capture.path)]
    assert {one.rank: set(one.comm_args["group_ranks"]) for one in job} == {n: {"0,1,2,3"} for n in range(4)}
    assert {one.meta.world_size for one in job} == {4}


def test_a_capture_and_its_copies_are_one_run(tmp_path):
    build.write(tmp_path / "vm.xplane.pb")
    for name in ("vm.trace.json", "perfetto_trace.json.gz"):
        (tmp_path / name).write_text("{}")
    found = discover(tmp_path)
    assert (len(found.runs), found.skipped) == (1, ())
