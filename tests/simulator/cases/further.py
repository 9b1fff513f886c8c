"""Kinds of jobs that no other file has, each fault in its own: committed before any report of them was seen."""

from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import chances, chunks, settings, sparse
from tests.simulator.noise import like_hosts, unlike_hosts

_EIGHT = tuple(range(8))

FURTHER: tuple[Case, ...] = (
    # One rank is set otherwise.
    case_of("one rank recomputes", settings.unlike, Fault("recompute", 0, (1,)), "linear", cause="compute",
            noise=like_hosts(722)),
    case_of("one rank records stacks", settings.unlike, Fault("stacks", 0, (0,), None, 30.0), "", cause="host",
            noise=like_hosts(725)),
    case_of("a rank far from its GPU's socket", settings.unlike, Fault("copy", 5 * MS, (2,)), "HtoD",
            left=(Fault("pace", 0, (2,), None, 1.6),), noise=unlike_hosts(726)),
    case_of("one rank's graph takes longer to walk", settings.branched, Fault("walk", 5 * MS, (1,)),
            "_find_unused_parameters", cause="host", noise=like_hosts(730)),
    nobody("all graphs take long to walk", "launch_bound stalls", settings.branched, Fault("walk", 9 * MS, FOUR),
           noise=like_hosts(731)),
    # Steps unlike others.
    nobody("healthy, batches twice as large from a step on", "", chances.ramped, noise=unlike_hosts(747)),
    case_of("batches twice as large, a loader since then", chances.ramped, Fault("data", 6 * MS, (2,), (4, 5, 6, 7)),
            LOADER, noise=like_hosts(748)),
    nobody("transfers with a long tail", "", chances.heavy_tailed, noise=unlike_hosts(749)),
    case_of("transfers with a long tail, garbage in two steps", chances.heavy_tailed,
            Fault("gc", 9 * MS, (3,), (1, 4)), "gc.collect", noise=like_hosts(750)),
    nobody("workers take all hosts' cores in two steps", "stalls launch_bound", chances.crowded_hosts,
           Fault("crowd", 0, _EIGHT, (2, 5), 6.0), noise=like_hosts(752)),
    nobody("a longer forward, a shorter backward, ranks meet at the end", "", chances.lopsided,
           Fault("more", 4 * MS, (1,)), Fault("less", 4 * MS, (1,)), is_met=False, noise=like_hosts(755)),
    # Inference.
    nobody("healthy, prompts in chunks", "", chunks.chunked, noise=like_hosts(781)),
    case_of("prompts in chunks, the driver plans for longer", chunks.chunked, Fault("plan", 3 * MS, (0,)), "schedule",
            cause="host", noise=like_hosts(782)),
    case_of("prompts in chunks, a rank's blocks are swapped in", chunks.chunked, Fault("swap", 9 * MS, (2,), (3, 7, 11)),
            "HtoD", cause="copies", noise=like_hosts(783)),
    nobody("patches a step behind, slow gathers that it hides", "", chunks.patched, Fault("wire", 2 * MS, FOUR),
           noise=unlike_hosts(785)),
    case_of("patches a step behind, a hot GPU", chunks.patched, Fault("throttle", 0, (3,), None, 1.3),
            "same kernels", noise=like_hosts(786)),
    # Few rows, copies of states.
    case_of("gradients of few rows, one rank sorts more of them", sparse.few_rows, Fault("unique", 5 * MS, (2,)),
            "unique", cause="compute", noise=like_hosts(792)),
    nobody("all copy their states in a step", "exposed_copies stalls", sparse.snapshots, Fault("snapshot", 12 * MS, FOUR, (3,)),
           noise=like_hosts(795)),
    # The second lot.
    case_of("all copy their states in a step, garbage in another", sparse.snapshots, Fault("gc", 14 * MS, (2,), (1,)),
            "gc.collect", left=(Fault("snapshot", 8 * MS, FOUR, (3,)),), noise=like_hosts(822)),
    case_of("all copy their states in a step, one twice as much", sparse.snapshots, Fault("snapshot", 9 * MS, (1,), (3,)),
            "DtoH", cause="copies", left=(Fault("snapshot", 9 * MS, FOUR, (3,)),), noise=like_hosts(823)),
    case_of("small kernels of eight, a crowded host", chances.crowded_hosts, Fault("crowd", 0, (3,), None, 6.0), "",
            cause="host", noise=like_hosts(832)),
)  # fmt: skip
