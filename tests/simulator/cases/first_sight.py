"""Jobs that hardly any other is like, each with faults and without: committed before any report of them was seen."""

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    ahead,
    dualpipe,
    moving,
    replicated_pipelines,
    some_passes,
)
from tests.simulator.noise import PACES, Noise, like_hosts, unlike_hosts, with_noise

_EIGHT = tuple(range(8))
_SAME = "same kernels"


FIRST_SIGHT: tuple[Case, ...] = (
    # Pipelines in some of their passes.
    nobody("healthy, pipelines of halves", "", some_passes.in_passes, noise=unlike_hosts(1112)),
    case_of("pipelines of halves, one pass of one stage is slow", some_passes.in_passes, Fault("hot", 3 * MS, (2,)),
            "AddmmBackward0", cause="compute", noise=like_hosts(1113)),
    case_of("pipelines of halves, garbage amid one stage's passes once", some_passes.in_passes,
            Fault("gc", 6 * MS, (5,), (2,)), "gc.collect", at=(6,), noise=like_hosts(1114)),
    nobody("pipelines of halves, the last stages' hosts pause within the bubble", "", some_passes.in_passes,
           Fault("host", 900_000, (3, 7)), at=(0,), noise=like_hosts(1117)),
    # Load that moves.
    nobody("healthy, batches by tokens", "", moving.by_tokens, noise=like_hosts(1118)),
    case_of("batches by tokens, a loader", moving.by_tokens, Fault("data", 7 * MS, (1,)), LOADER, is_sharded=True,
            noise=like_hosts(1119)),
    case_of("batches by tokens, a rank's texts are always longer", moving.by_tokens, Fault("long", 2 * MS, (3,)), "",
            cause="compute", spread=0.1, noise=like_hosts(1120)),
    nobody("healthy, states staged out", "", moving.staged_out, noise=unlike_hosts(1124)),
    case_of("states staged out, a slow bus", moving.staged_out, Fault("stage", 8 * MS, (2,), (2, 5)), "DtoH",
            cause="copies", noise=like_hosts(1125)),
    case_of("states staged out, a writing thread holds the interpreter", moving.staged_out,
            Fault("write", 12 * MS, (1,), (2, 5)), "", cause="host", noise=like_hosts(1126)),
    nobody("healthy, batches mixed on hosts", "", moving.prepared_on_hosts, noise=like_hosts(1127)),
    case_of("batches mixed on hosts, threads fight for cores", moving.prepared_on_hosts, Fault("pool", 9 * MS, (3,)),
            "mixup", cause="host", noise=like_hosts(1128)),
    nobody("batches mixed on hosts, all for too long", "launch_bound stalls", moving.prepared_on_hosts,
           Fault("pool", 9 * MS, FOUR), noise=like_hosts(1129)),
    case_of("batches mixed on hosts, a hot GPU", moving.prepared_on_hosts, Fault("throttle", 0, (0,), None, 1.3), _SAME,
            left=(Fault("pool", 3 * MS, (2,)),), others=(2,), noise=like_hosts(1130)),
    # The second lot. DualPipe; generators ahead; what is recorded of others.
    nobody("healthy, two ways through a pipeline", "", dualpipe.of_eight, noise=like_hosts(1201)),
    case_of("two ways through a pipeline, a hot GPU", dualpipe.of_eight, Fault("throttle", 0, (2,), None, 1.3), _SAME,
            noise=like_hosts(1202)),
    case_of("two ways through a pipeline, a host before a step", dualpipe.of_eight, Fault("host", 8 * MS, (6,), (1,)),
            "log_metrics", noise=like_hosts(1203)),
    nobody("healthy, generators a step ahead", "", ahead.a_step_behind, noise=unlike_hosts(1204)),
    nobody("generators a step ahead, one is slower within the trainers' time", "", ahead.a_step_behind,
           Fault("answer", 1_500_000, (5,)), noise=like_hosts(1205)),
    case_of("generators a step ahead, a hot trainer", ahead.a_step_behind, Fault("throttle", 0, (2,), None, 1.25), _SAME,
            noise=like_hosts(1207)),
    case_of("states staged out, a kernel hangs on a GPU twice", moving.staged_out, Fault("hiccup", 6 * MS, (3,), (3, 6)),
            "", cause="compute", noise=like_hosts(1208)),
    case_of("pinned memory is asked for in two steps", ahead.pinned_anew, Fault("pin", 9 * MS, (1,), (2, 4)),
            "pin_memory", cause="host", noise=like_hosts(1209)),
    nobody("states staged out, the network is slow from the middle on", "exposed_communication slow_link", moving.staged_out,
           Fault("net", 6 * MS, FOUR, (4, 5, 6, 7)), noise=like_hosts(1213)),
    nobody("healthy, held over micro-batches, much noise, two steps", "", ahead.held_over, steps=3, first=1,
           noise=Noise(1217, 0.4, 0.08, 0.4, PACES)),
    case_of("held over micro-batches, a host in the third one", ahead.held_over, Fault("host", 8 * MS, (3,)), "log_metrics",
            noise=like_hosts(1224)),
    case_of("an edge between stages is slow from the middle on", replicated_pipelines.edged,
            Fault("link", 16 * MS, (1, 2), (3, 4, 5)), "ranks 1 and 2", cause="transfer", steps=6),
    # The third lot. Unusual proportions; faults behind others; what others wait for within a step.
    # Behind gathers it still costs 1.1% of a step, as is said of it: not first.
    nobody("all loaders are slow, one twice as much", "data_loading straggler", with_noise(usual.hsdp, like_hosts(1320)),
           Fault("data", 5 * MS, (3,)), Fault("data", 4 * MS, _EIGHT), shard=4, replicate=2, others=(3,)),
    case_of("generators a step ahead, a trainer's loader, ranges alone", ahead.a_step_behind, Fault("data", 6 * MS, (1,)),
            LOADER, noise=like_hosts(1321), how=Capture(has_payloads=True), by="nsys"),
)  # fmt: skip
