"""Jobs that hardly any other is like, each with faults and without: committed before any report of them was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import APART, FOUR, LOADER, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import hierarchies, moving, some_passes
from tests.simulator.noise import like_hosts, unlike_hosts

_SAME = "the same kernels take"

_BUSY = Truth((0, 1, 3, 4, 6, 7), "compute", "_grouped_mm", has_gain=False)

FIRST_SIGHT: tuple[Case, ...] = (
    # Sharded on two levels.
    nobody("healthy, gathered over all, then within nodes", "", hierarchies.quantised, noise=unlike_hosts(1101)),
    case_of("gradients in eight bits, a hot GPU", hierarchies.quantised, Fault("throttle", 0, (5,), None, 1.2), _SAME,
            noise=like_hosts(1102)),
    case_of("gradients in eight bits, a rank takes longer to turn them", hierarchies.quantised, Fault("quant", 4 * MS, (2,)),
            "quant", cause="compute", noise=like_hosts(1103), how=APART),
    case_of("gradients in eight bits, a place's card", hierarchies.quantised, Fault("card", 5 * MS, (1, 5)),
            "all-to-all among ranks 1 and 5", cause="transfer", noise=like_hosts(1104)),
    case_of("gradients in eight bits, garbage once before heat", hierarchies.quantised, Fault("gc", 12 * MS, (3,), (2,)),
            "gc.collect", left=(Fault("throttle", 0, (6,), None, 1.12),), others=(6,), noise=like_hosts(1105)),
    nobody("healthy, rows that do not divide", "", hierarchies.unevenly_sharded, noise=unlike_hosts(1106)),
    case_of("rows that do not divide, a hot GPU, ranges alone", hierarchies.unevenly_sharded,
            Fault("throttle", 0, (1,), None, 1.25), _SAME, noise=like_hosts(1107), how=Capture(has_payloads=True),
            by="nsys"),
    case_of("rows that do not divide, a loader", hierarchies.unevenly_sharded, Fault("data", 6 * MS, (5,)), LOADER,
            noise=like_hosts(1108)),
    nobody("healthy, tokens counted before micro-batches", "", hierarchies.counted, spread=0.2, noise=like_hosts(1109)),
    case_of("tokens counted before micro-batches, a loader", hierarchies.counted, Fault("data", 8 * MS, (2,)), LOADER,
            noise=like_hosts(1110)),
    case_of("tokens counted before micro-batches, a host logs in two steps", hierarchies.counted,
            Fault("host", 7 * MS, (3,), (1, 4)), "log_metrics", spread=0.1, noise=like_hosts(1111)),
    # Pipelines in some of their passes.
    nobody("healthy, pipelines of halves", "", some_passes.in_passes, noise=unlike_hosts(1112)),
    case_of("pipelines of halves, one pass of one stage is slow", some_passes.in_passes, Fault("hot", 3 * MS, (2,)),
            "AddmmBackward0", cause="compute", noise=like_hosts(1113)),
    case_of("pipelines of halves, garbage amid one stage's passes once", some_passes.in_passes,
            Fault("gc", 6 * MS, (5,), (2,)), "gc.collect", at=(6,), noise=like_hosts(1114)),
    case_of("pipelines of halves, a replica's texts are longer in two steps", some_passes.in_passes,
            Fault("text", 4 * MS, (4, 5, 6, 7), (1, 3)), "", cause="compute", at=(2,), steps=5, noise=like_hosts(1115)),
    # Nothing is gained by evaluating less: what is said first of it is true, and gains something.
    nobody("pipelines of halves, all evaluate in a step", "", some_passes.in_passes, steps=5,
           evaluates=(2,), noise=like_hosts(1116)),
    nobody("pipelines of halves, the last stages' hosts pause within the bubble", "", some_passes.in_passes,
           Fault("host", 900_000, (3, 7)), at=(0,), noise=like_hosts(1117)),
    # Load that moves.
    nobody("healthy, batches by tokens", "", moving.by_tokens, noise=like_hosts(1118)),
    case_of("batches by tokens, a loader", moving.by_tokens, Fault("data", 7 * MS, (1,)), LOADER, is_sharded=True,
            noise=like_hosts(1119)),
    case_of("batches by tokens, a rank's texts are always longer", moving.by_tokens, Fault("long", 2 * MS, (3,)), "",
            cause="compute", spread=0.1, noise=like_hosts(1120)),
    # Other experts are the busiest in each step: these ranks in turn, as is said.
    several("experts placed anew, in each step another rank's are busiest", moving.placed_anew, (), _BUSY,
            noise=like_hosts(1121)),
    case_of("experts placed anew, a rank's are always busiest", moving.placed_anew, Fault("hot", 4 * MS, (2,)),
            "_grouped_mm", cause="compute", others=_BUSY.ranks, skew=0.2, noise=like_hosts(1122)),
    case_of("experts placed anew, a loader in two steps", moving.placed_anew, Fault("data", 9 * MS, (5,), (2, 3)), LOADER,
            others=_BUSY.ranks, skew=0.2, noise=like_hosts(1123)),
    nobody("healthy, states staged out", "", moving.staged_out, noise=unlike_hosts(1124)),
    case_of("states staged out, a slow bus", moving.staged_out, Fault("stage", 8 * MS, (2,), (2, 5)), "DtoH",
            cause="copies", noise=like_hosts(1125)),
    case_of("states staged out, a writing thread holds the interpreter", moving.staged_out,
            Fault("write", 12 * MS, (1,), (2, 5)), "", cause="host", noise=like_hosts(1126)),
    nobody("healthy, batches mixed on hosts", "", moving.prepared_on_hosts, noise=like_hosts(1127)),
    case_of("batches mixed on hosts, threads fight for cores", moving.prepared_on_hosts, Fault("pool", 9 * MS, (3,)),
            "mixup", cause="host", noise=like_hosts(1128)),
    nobody("batches mixed on hosts, all for too long", "host|CPU|sort|mixup", moving.prepared_on_hosts,
           Fault("pool", 9 * MS, FOUR), noise=like_hosts(1129)),
    case_of("batches mixed on hosts, a hot GPU", moving.prepared_on_hosts, Fault("throttle", 0, (0,), None, 1.3), _SAME,
            left=(Fault("pool", 3 * MS, (2,)),), others=(2,), noise=like_hosts(1130)),
)  # fmt: skip
