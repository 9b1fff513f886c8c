"""What happened to files: missing, cut, renamed, copied, edited, in folders, of several runs."""

from pathlib import Path

from tests.simulator import kineto, spoiled
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.case import LOADER, MS, Case, case_of, nobody
from tests.simulator.engine import run
from tests.simulator.faults import Fault
from tests.simulator.jobs import sharded
from tests.simulator.noise import PACES, Noise, unlike_hosts, with_noise


def _of_six(folder: Path) -> None:
    kineto.write(capture(run(usual.ddp(6, 4, layers=12)), Capture()), folder)


FILES: tuple[Case, ...] = (
    case_of("ddp, one file cut", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm", how=Capture(cut={2: 0.8}),
            has_gain=False),
    nobody("ddp, the straggler's file is missing", "missing_data", usual.ddp,
            Fault("compute", 3 * MS, (5,)), ranks=8, steps=4, how=Capture(missing=(5,))),
    nobody("one file of eight", "missing_data", usual.ddp, Fault("compute", 3 * MS, (2,)),
            how=Capture(missing=(0, 1, 2, 3, 5, 6, 7))),
    nobody("healthy, tensor parallel, a file missing", "", with_noise(usual.tp_dp, Noise(43, 0.2, 0.03, 0.2, PACES)),
            tensor=4, data=2, how=Capture(missing=(6,))),
    case_of("one node of four recorded, a GPU of it", with_noise(usual.tp_dp, unlike_hosts(342)),
            Fault("compute", 4 * MS, (2,)), "mm", tensor=4, data=4, how=Capture(missing=tuple(range(4, 16))),
            has_gain=False),
    nobody("one node of four recorded, a GPU of another", "missing_data exposed_communication",
            with_noise(usual.tp_dp, unlike_hosts(343)), Fault("compute", 4 * MS, (9,)), tensor=4, data=4,
            how=Capture(missing=tuple(range(4, 16)))),
    case_of("a cut file, another rank is hot, clocks apart", with_noise(usual.fsdp, unlike_hosts(427)),
            Fault("throttle", 0, (5,), None, 1.35), "same kernels", steps=6,
            how=Capture(cut={2: 0.6}, offset_ns={1: 3 * MS, 6: -5 * MS}), has_gain=False),
    case_of("another rank's file is missing", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm", ranks=6,
            how=Capture(missing=(2,)), has_gain=False),
    nobody("one rank of eight is here", "missing_data", usual.ddp, Fault("compute", 3 * MS, (5,)),
            ranks=8, steps=5, how=Capture(missing=tuple(range(1, 8)))),
    nobody("two ranks of eight are here", "missing_data", usual.tp_dp, Fault("compute", 3 * MS, (5,)),
            tensor=4, data=2, steps=5, how=Capture(missing=(1, 2, 3, 5, 6, 7))),
    case_of("two files missing, a host", usual.ddp, Fault("host", 5 * MS, (1,)), "log_metrics", ranks=8,
            how=Capture(missing=(3, 6)), has_gain=False),
    case_of("a file of the other shard group is missing", usual.hsdp, Fault("compute", 3 * MS, (6,)), "mm", shard=4,
            replicate=2, how=Capture(missing=(1,)), has_gain=False),
    nobody("healthy, no steps, one file cut", "", with_noise(usual.ddp, Noise(20, 0.2, 0.03, 0.1)), ranks=4,
            has_steps=False, how=Capture(cut={2: 0.7})),
    nobody("healthy, two files missing", "", with_noise(usual.fsdp, Noise(21, 0.2, 0.03, 0.1)), ranks=8,
            how=Capture(missing=(2, 5))),
    nobody("two neighbours' files are missing, one of them late", "missing_data", usual.ddp,
            Fault("compute", 3 * MS, (5,)), how=Capture(missing=(5, 6))),
    case_of("two neighbours' files are missing, another late", usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics",
            how=Capture(missing=(5, 6)), has_gain=False),
    case_of("half of the files are missing", usual.ddp, Fault("compute", 3 * MS, (2,)), "mm",
            how=Capture(missing=(4, 5, 6, 7)), has_gain=False),
    nobody("half of the files are missing, even", "", usual.hsdp, how=Capture(missing=(1, 3, 5, 7)),
            shard=4, replicate=2),
    case_of("a rank counts its steps otherwise", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
            spoil=spoiled.numbered_otherwise(3, 1), steps=6),
    case_of("no step is shared", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
            spoil=spoiled.numbered_otherwise(9, 1), ranks=2, has_gain=False),
    case_of("the late rank marks no steps", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
            spoil=spoiled.without_steps(5), has_gain=False),
    case_of("another rank marks no steps", usual.fsdp, Fault("host", 6 * MS, (3,)), "log_metrics",
            spoil=spoiled.without_steps(2), has_gain=False),
    nobody("healthy, a rank marks no steps", "", usual.ddp, spoil=spoiled.without_steps(2)),
    case_of("a file cut at 60 %", usual.hsdp, Fault("host", 5 * MS, (5,)), "log_metrics", how=Capture(cut={2: 0.6}),
            has_gain=False),
    case_of("tensor x data without marks of steps", usual.tp_dp, Fault("data", 5 * MS, (2,)), LOADER,
            spoil=spoiled.edited(range(8), lambda document: document.update(traceEvents=[each for each in document["traceEvents"] if not each["name"].startswith("ProfilerStep#")])),
            tensor=2, data=4, has_gain=False),
    case_of("one rank without its host's side", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
            spoil=spoiled.without_host(3), ranks=4, has_gain=False),
    case_of("one rank without its GPU's side", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
            spoil=spoiled.without_gpu(3), ranks=4, has_gain=False),
    case_of("collectives without arguments, one group", usual.ddp, Fault("host", 6 * MS, (4,)), "log_metrics",
            spoil=spoiled.old_version(6), ranks=6),
    case_of("a rank's file twice", usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER,
            spoil=spoiled.copied(2, "rank2 (1).json.gz"), ranks=4),
    case_of("two files with each other's name", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm",
            spoil=spoiled.swapped(1, 2), ranks=4),
    case_of("shapes on some ranks only", usual.ddp, Fault("throttle", 0, (1,), None, 1.4),
            "same kernels take 1.4", spoil=spoiled.without_shapes(2, 3), ranks=4),
    case_of("packed beside plain files", sharded.uneven_prefetch, Fault("compute", 3 * MS, (2,)), "mm",
            spoil=spoiled.unpacked(0, 2)),
    case_of("two windows of each rank", usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics",
            spoil=spoiled.in_windows(4, (5,)), ranks=4, steps=9, has_gain=False),
    nobody("two windows of each rank, even", "", usual.ddp, ranks=4, steps=9, spoil=spoiled.in_windows(4, (5,))),
    case_of("a job that was restarted", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
            spoil=spoiled.restarted(_of_six, 300e6)),
    case_of("another job's files beside", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm",
            spoil=spoiled.restarted(_of_six, 1_000)),
    case_of("folders of nodes, ranks within them", usual.ddp, Fault("compute", 3 * MS, (3,)), "mm",
            spoil=spoiled.of_nodes(2, 4), ranks=4),
    case_of("folders of hosts by their names, tensor x data", usual.tp_dp, Fault("gc", 6 * MS, (6,)), "gc.collect",
            spoil=spoiled.of_nodes(4, 8, "hgx-a{}1"), tensor=4, data=2),
)  # fmt: skip
