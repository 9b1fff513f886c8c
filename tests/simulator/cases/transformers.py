"""Transformers with a known fault, or none; each lot was committed before any report of it was seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import transformers as jobs
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise
from tests.simulator.program import Job
from tests.simulator.spoiled import edited, without_shapes

_EIGHT = tuple(range(8))

_APART = Capture(offset_ns={1: 4 * MS, 3: -2 * MS, 6: 7 * MS}, drift={2: 2e-5})


def _on_their_thread(document: dict[str, Any]) -> None:
    """What happens within `backward` is done by autograd's thread."""
    every = document["traceEvents"]
    spans = [(one["ts"], one["ts"] + one["dur"]) for one in every if one["name"] == "backward"]
    for one in every:
        within = any(begin <= one["ts"] and one["ts"] + one["dur"] <= end for begin, end in spans)
        if one["tid"] == 100 and one["name"] != "backward" and within:
            one["tid"] = 220


def without_python(document: dict[str, Any]) -> None:
    """Neither shapes nor Python's frames."""
    document["traceEvents"] = [one for one in document["traceEvents"] if one["cat"] != "python_function"]
    for one in document["traceEvents"]:
        one["args"].pop("Input Dims", None)


def without_group_ranks(document: dict[str, Any]) -> None:
    """Which ranks a group has is not told, neither beside its calls nor at the head."""
    document["distributedInfo"].pop("pg_config")
    for one in document["traceEvents"]:
        one["args"].pop("Process Group Ranks", None)


def autograd(ranks: int) -> Any:
    """Backward has a thread of its own, as in PyTorch."""
    return edited(range(ranks), _on_their_thread)


def _both(*spoils: Any) -> Any:
    def spoil(folder: Path) -> None:
        for each in spoils:
            each(folder)

    return spoil


def _numa(**options: object) -> Job:
    job = with_noise(usual.tp_dp, like_hosts(523))(**options)
    return replace(job, hosts=tuple(f"node{rank // 4}" for rank in range(8)))


TRANSFORMERS: tuple[Case, ...] = (
    # Sharded and clipped.
    nobody("healthy, clipped by a norm that is read", "", jobs.clipped, noise=unlike_hosts(501), spoil=autograd(8)),
    nobody("clipped, a host pauses within its lead", "", jobs.clipped, Fault("host", 6 * MS, (3,), (3,)), is_read=False, layers=4,
            noise=like_hosts(502)),
    replace(case_of("clipped, attention goes the slow way on a rank", jobs.clipped, Fault("math", 5 * MS, (5,)), "Attention",
                    cause="compute", noise=unlike_hosts(503)), spoil=autograd(8)),
    replace(case_of("clipped, a loader, autograd's thread, clocks apart", jobs.clipped, Fault("data", 7 * MS, (2,)), LOADER, noise=unlike_hosts(504),
                    how=_APART), spoil=autograd(8)),
    replace(case_of("clipped, throttled from the middle on, no shapes", jobs.clipped, Fault("throttle", 0, (6,), (3, 4, 5, 6), 1.4),
                    "the same kernels take", steps=7, noise=unlike_hosts(505), how=_APART), spoil=_both(autograd(8), without_shapes(*_EIGHT))),
    # Each hides the other in one step: together they gain 4.55 ms, alone 2.18 and 1.63.
    Case("clipped, products always, garbage of another once", lambda own: jobs.clipped(faults=own, noise=unlike_hosts(506)),
         (Fault("compute", 3 * MS, (6,)), Fault("gc", 10 * MS, (1,), (2,))), Truth((1, 6), "host and compute", "mm")),
    case_of("clipped, one rank compiles again", jobs.clipped, Fault("compile", 60 * MS, (0,), (3,)), "compile", cause="host", noise=unlike_hosts(507)),
    Case("clipped, all compile again, not all as long", lambda own: jobs.clipped(faults=own, noise=unlike_hosts(508)),
         tuple(Fault("compile", (57 + rank % 4) * MS, (rank,), (3,)) for rank in range(8)), Truth(says="", others=(3, 7))),
    case_of("clipped, allocator retries in two steps", jobs.clipped, Fault("free", 8 * MS, (4,), (2, 4)), "cudaFree", steps=7, noise=unlike_hosts(509)),
    case_of("clipped, copied out beside its kernels", jobs.clipped, Fault("snapshot", 0, (0,), (2, 3)), "", cause="compute", is_small=True,
            noise=unlike_hosts(510)),
    replace(case_of("clipped, a loader, ranges alone", jobs.clipped, Fault("data", 7 * MS, (2,)), "", noise=unlike_hosts(511),
                    how=Capture(has_payloads=True)), by="nsys"),
    # Micro-batches.
    nobody("lengths go round within a step", "", jobs.accumulated, lengths=(0.5, 0.8, 1.2, 1.5), noise=unlike_hosts(512)),
    # Said to gain 5.31 ms for 6.01: a rank is held against the median of each kernel, whose lengths go round on its peers, too.
    case_of("lengths go round, one rank's are all longer", jobs.accumulated, Fault("long", 6 * MS, (2,)), "", cause="compute",
            lengths=(0.5, 0.8, 1.2, 1.5), has_gain=False, noise=unlike_hosts(513)),
    nobody("the last batch of a rank is half as long", "", jobs.accumulated, Fault("fewer", 0, (1,), (3,)), ranks=2, noise=unlike_hosts(514)),
    nobody("garbage on all ranks in one step", "", jobs.accumulated, Fault("gc", 9 * MS, (0, 1, 2, 3), (2,)), others=(1, 3), noise=unlike_hosts(515)),
    # Networks.
    nobody("a crowded network in two steps", "", jobs.between_nodes, Fault("crowded", 8 * MS, _EIGHT, (3, 4)), noise=unlike_hosts(516)),
    case_of("a crowded network in two steps, a late host in another", jobs.between_nodes, Fault("host", 14 * MS, (5,), (2,)), "log_metrics",
            left=(Fault("crowded", 4 * MS, _EIGHT, (4,)),), noise=unlike_hosts(517)),
    # Evaluation.
    nobody("healthy, all evaluate between steps", "", jobs.evaluated, noise=unlike_hosts(518)),
    case_of("all evaluate between steps, one has four batches more", jobs.evaluated, Fault("batches", 4, (1,), (2,)), "", cause="compute",
            noise=unlike_hosts(519)),
    # Stages.
    nobody("labels are loaded within the bubble", "", jobs.staged, Fault("labels", 1_500_000, (6, 7)), noise=like_hosts(520)),
    nobody("labels take longer than the bubble", "ranks 6 and 7 wait .* for data", jobs.staged, Fault("labels", 8 * MS, (6, 7)), others=(6, 7),
            noise=like_hosts(521)),
    # Experts.
    nobody("healthy, experts' loads drawn in each layer", "", jobs.experts, noise=unlike_hosts(522)),
    case_of("experts' loads drawn in each layer, a hot GPU", jobs.experts, Fault("throttle", 0, (3,), None, 1.4), "the same kernels take",
            noise=unlike_hosts(523)),
    # Hosts.
    case_of("tensor x data, a node's hosts much slower", _numa, Fault("pace", 0, (4, 5, 6, 7), None, 12.0), LOADER, cause="data",
            tensor=4, data=2),
    nobody("healthy, replicas that serve alone", "", jobs.alone, noise=unlike_hosts(525)),
    nobody("replicas that serve alone, one throttled", "Rank 2's GPU is slower", jobs.alone, Fault("throttle", 0, (2,), None, 1.4), others=(2,), noise=unlike_hosts(526)),
    # The second lot: pipelines.
    nobody("healthy, stages of micro-batches of many lengths", "ipeline|ommunication|ll-reduce", jobs.staged, lengths=(0.5, 1.4, 0.8, 1.3, 0.6, 1.4),
            noise=unlike_hosts(531)),
    case_of("stages, one replica's micro-batches are longer", jobs.staged, Fault("wide", 0, (1, 3, 5, 7)), "", cause="compute",
            noise=unlike_hosts(532)),
    case_of("stages, one edge of one replica is slow", jobs.staged, Fault("edge", 6 * MS, (2,)), "ranks 2 and 4", says_ranks=(2, 4),
            cause="transfer", noise=replace(unlike_hosts(533), wire=0.01)),
    case_of("stages, garbage in the third one once", jobs.staged, Fault("gc", 15 * MS, (5,), (1,)), "gc.collect", steps=4, noise=unlike_hosts(534)),
    # Serving.
    nobody("healthy, decoded with prefills between", "", jobs.decoded, others=(0,), noise=like_hosts(535)),
    # Rank 0 alone plans, in each step: that is gained, too.
    Case("decoded, rank 0 plans for longer now and then", lambda own: jobs.decoded(faults=own, noise=like_hosts(536)),
         (Fault("plan", 4 * MS, (0,), (3, 6, 10)),), Truth((0,), "host", "schedule", has_gain=False)),
    case_of("decoded, one host takes longer with its samples", jobs.decoded, Fault("sample", 1 * MS, (2,)), "gather_outputs", cause="host",
            others=(0,), noise=like_hosts(537)),
    case_of("decoded, a GPU throttled", jobs.decoded, Fault("throttle", 0, (1,), None, 1.3), "the same kernels take", others=(0,), noise=like_hosts(538)),
    # Many ranks.
    Case("sharded over 64, a node's loaders", lambda own: replace(jobs.clipped(64, 3, own, layers=1, noise=unlike_hosts(539)),
                                                                  hosts=tuple(f"node{rank // 8}" for rank in range(64))),
         (Fault("data", 6 * MS, tuple(range(24, 32))),), Truth(tuple(range(24, 32)), "data", LOADER)),
    case_of("one rank of each node recorded, a loader of one of them", jobs.clipped, Fault("data", 6 * MS, (8,)), LOADER, ranks=32, steps=4,
            layers=2, noise=unlike_hosts(540), how=Capture(missing=tuple(rank for rank in range(32) if rank % 8)), has_gain=False),
    nobody("one rank of each node recorded, a loader of another", "4 of 32 ranks|not here|missing", jobs.clipped, Fault("data", 6 * MS, (9,)),
            ranks=32, steps=4, layers=2, noise=unlike_hosts(541), how=Capture(missing=tuple(rank for rank in range(32) if rank % 8))),
    # Two at once.
    Case("two loaders, one behind the other", lambda own: with_noise(usual.hsdp, unlike_hosts(542))(shard=4, replicate=2, faults=own),
         (Fault("data", 9 * MS, (2,)), Fault("data", 6 * MS, (5,))), Truth((2, 5), "data", LOADER)),
    case_of("a hot GPU before another's garbage in a step of its own", jobs.between_nodes, Fault("throttle", 0, (6,), (2, 3, 4, 5), 1.5),
            "the same kernels take", left=(Fault("gc", 5 * MS, (1,), (1,)),), others=(1,), steps=7, noise=unlike_hosts(543)),
    # Experts.
    case_of("experts' loads drawn, one rank is always hot", jobs.experts, Fault("hot", 0, (3,)), "grouped", cause="compute", spread=0.05,
            has_gain=False, noise=unlike_hosts(544)),
    # Loaders.
    nobody("all loaders are slow in every fourth step", "data|DataLoader", jobs.between_nodes, Fault("data", 9 * MS, _EIGHT, (0, 4, 8)), steps=10,
            layers=2, others=(0, 1, 3, 7), noise=like_hosts(545)),
    replace(case_of("loaders of two ranks in turn, no shapes, no frames", jobs.accumulated, Fault("data", 5 * MS, (1,), (1, 3, 5)), LOADER,
                    left=(Fault("data", 4 * MS, (2,), (2, 4)),), others=(2,), steps=7, lengths=(1.0, 1.0), noise=unlike_hosts(546)),
            spoil=edited(range(4), without_python)),
    # Noise.
    nobody("healthy, two ranks, kernels as they come", "", jobs.accumulated, ranks=2, steps=10, lengths=(1.0, 1.0),
            noise=Noise(547, 0.3, 0.1, 0.2)),
    nobody("healthy, recorded from other moments on, clocks apart", "", jobs.between_nodes, noise=unlike_hosts(548),
            how=Capture(start_ns={1: 9 * MS, 4: 14 * MS}, offset_ns={2: 40 * MS, 5: -90 * MS}, drift={3: 5e-5})),
    # Captures.
    replace(case_of("no steps, ranges alone, a GPU throttled", with_noise(usual.ddp, unlike_hosts(549)), Fault("throttle", 0, (3,), None, 1.35),
                    "the same kernels take", has_steps=False), by="nsys", is_of_capture=True),
    replace(case_of("groups without ranks, tensor x data, products", with_noise(usual.tp_dp, unlike_hosts(550)), Fault("compute", 4 * MS, (6,)), "mm",
                    tensor=2, data=4), spoil=edited(_EIGHT, without_group_ranks)),
    # The third lot, after what the first two showed was mended.
    case_of("two of eight ranks have longer batches", jobs.accumulated, Fault("long", 4 * MS, (2, 5)), "", cause="compute", ranks=8,
            lengths=(0.7, 1.3), noise=unlike_hosts(561)),
    case_of("decoded on eight, garbage in two steps", jobs.decoded, Fault("gc", 5 * MS, (5,), (2, 7)), "gc.collect", ranks=8,
            others=(0,), noise=like_hosts(562)),
    case_of("decoded, throttled from the sixth step on", jobs.decoded, Fault("throttle", 0, (3,), (6, 7, 8, 9, 10, 11), 1.4),
            "the same kernels take", others=(0,), noise=like_hosts(563)),
    case_of("stages, one replica's micro-batches are longer in one step", jobs.staged, Fault("wide", 0, (0, 2, 4, 6), (1,)), "",
            cause="compute", steps=4, noise=unlike_hosts(564)),
    case_of("stages, products on one rank", jobs.staged, Fault("compute", 4 * MS, (3,)), "mm", noise=unlike_hosts(565)),
    nobody("healthy, three replicas of stages", "", jobs.staged, stages=3, data=3, noise=unlike_hosts(566)),
    nobody("healthy, clipped over 16", "", jobs.clipped, ranks=16, layers=2, steps=4, noise=unlike_hosts(567), spoil=autograd(16)),
    case_of("clipped, nobody reads, a hot GPU", jobs.clipped, Fault("throttle", 0, (4,), None, 1.25), "the same kernels take", is_read=False,
            noise=unlike_hosts(568)),
    nobody("clipped, a host pauses in one step within its lead", "", jobs.clipped, Fault("host", 3 * MS, (2,), (4,)), steps=6, is_read=False,
            noise=like_hosts(569)),
    nobody("healthy, four ranks' experts drawn anew", "", jobs.experts, ranks=4, seed=3, steps=5, noise=unlike_hosts(570)),
    case_of("clipped, attention goes the slow way on two ranks", jobs.clipped, Fault("math", 4 * MS, (1, 6)), "Attention", cause="compute",
            noise=unlike_hosts(571)),
    case_of("evaluated, one rank saves in another step", jobs.evaluated, Fault("save", 8 * MS, (3,), (1,)), "save", noise=unlike_hosts(572)),
    nobody("a crowded network once, four ranks", "", jobs.between_nodes, Fault("crowded", 6 * MS, (0, 1, 2, 3), (2,)), ranks=4, noise=unlike_hosts(573)),
    nobody("all loaders are slow always", "data", jobs.between_nodes, Fault("data", 7 * MS, (0, 1, 2, 3)), ranks=4, steps=4, noise=like_hosts(574)),
    nobody("healthy, two replicas that serve alone", "", jobs.alone, ranks=2, noise=unlike_hosts(575)),
)  # fmt: skip
