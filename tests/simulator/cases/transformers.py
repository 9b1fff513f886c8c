"""Transformers with a known fault, or none; each lot was committed before any report of it was seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import transformers as jobs
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise
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
                    "same kernels", steps=7, noise=unlike_hosts(505), how=_APART), spoil=_both(autograd(8), without_shapes(*_EIGHT))),
    # Each hides the other in one step: together they gain 4.55 ms, alone 2.18 and 1.63.
    Case("clipped, products always, garbage of another once", lambda own: jobs.clipped(faults=own, noise=unlike_hosts(506)),
         (Fault("compute", 3 * MS, (6,)), Fault("gc", 10 * MS, (1,), (2,))), Truth((6,), "compute", "mm", others=(1,)),
         left=(Fault("gc", 10 * MS, (1,), (2,)),)),
    case_of("clipped, one rank compiles again", jobs.clipped, Fault("compile", 60 * MS, (0,), (3,)), "compile", cause="host", noise=unlike_hosts(507)),
    Case("clipped, all compile again, not all as long", lambda own: jobs.clipped(faults=own, noise=unlike_hosts(508)),
         tuple(Fault("compile", (57 + rank % 4) * MS, (rank,), (3,)) for rank in range(8)), Truth(kinds="", others=(3, 7))),
    case_of("clipped, copied out beside its kernels", jobs.clipped, Fault("snapshot", 0, (0,), (2, 3)), "", cause="compute", is_small=True,
            is_behind=True, noise=unlike_hosts(510)),
    replace(case_of("clipped, a loader, ranges alone", jobs.clipped, Fault("data", 7 * MS, (2,)), "", noise=unlike_hosts(511),
                    how=Capture(has_payloads=True)), by="nsys"),
    # Networks.
    nobody("a crowded network in two steps", "", jobs.between_nodes, Fault("crowded", 8 * MS, _EIGHT, (3, 4)), noise=unlike_hosts(516)),
    case_of("a crowded network in two steps, a late host in another", jobs.between_nodes, Fault("host", 14 * MS, (5,), (2,)), "log_metrics",
            left=(Fault("crowded", 4 * MS, _EIGHT, (4,)),), noise=unlike_hosts(517)),
    # Stages.
    nobody("labels are loaded within the bubble", "", jobs.staged, Fault("labels", 1_500_000, (6, 7)), noise=like_hosts(520)),
    # Hosts.
    case_of("tensor x data, a node's hosts much slower", _numa, Fault("pace", 0, (4, 5, 6, 7), None, 12.0), LOADER, cause="data",
            tensor=4, data=2),
    nobody("healthy, replicas that serve alone", "", jobs.alone, noise=unlike_hosts(525)),
    nobody("replicas that serve alone, one throttled", "straggler uneven_work", jobs.alone, Fault("throttle", 0, (2,), None, 1.4), others=(2,), noise=unlike_hosts(526)),
    # The second lot: pipelines.
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
    case_of("decoded, a GPU throttled", jobs.decoded, Fault("throttle", 0, (1,), None, 1.3), "same kernels", others=(0,), noise=like_hosts(538)),
    # Two at once.
    case_of("a hot GPU before another's garbage in a step of its own", jobs.between_nodes, Fault("throttle", 0, (6,), (2, 3, 4, 5), 1.5),
            "same kernels", left=(Fault("gc", 5 * MS, (1,), (1,)),), others=(1,), steps=7, noise=unlike_hosts(543)),
    # Loaders.
    replace(case_of("loaders of two ranks in turn, no shapes, no frames", jobs.accumulated, Fault("data", 5 * MS, (1,), (1, 3, 5)), LOADER,
                    left=(Fault("data", 4 * MS, (2,), (2, 4)),), others=(2,), steps=7, lengths=(1.0, 1.0), noise=unlike_hosts(546)),
            spoil=edited(range(4), without_python)),
    # Noise.
    nobody("healthy, recorded from other moments on, clocks apart", "", jobs.between_nodes, noise=unlike_hosts(548),
            how=Capture(start_ns={1: 9 * MS, 4: 14 * MS}, offset_ns={2: 40 * MS, 5: -90 * MS}, drift={3: 5e-5})),
    # Captures.
    replace(case_of("no steps, ranges alone, a GPU throttled", with_noise(usual.ddp, unlike_hosts(549)), Fault("throttle", 0, (3,), None, 1.35),
                    "same kernels", has_steps=False), by="nsys", is_of_capture=True),
    replace(case_of("groups without ranks, tensor x data, products", with_noise(usual.tp_dp, unlike_hosts(550)), Fault("compute", 4 * MS, (6,)), "mm",
                    tensor=2, data=4), spoil=edited(_EIGHT, without_group_ranks)),
    # The third lot, after what the first two showed was mended.
    case_of("stages, one replica's micro-batches are longer in one step", jobs.staged, Fault("wide", 0, (0, 2, 4, 6), (1,)), "",
            cause="compute", steps=4, noise=unlike_hosts(564)),
    nobody("healthy, three replicas of stages", "", jobs.staged, stages=3, data=3, noise=unlike_hosts(566)),
)  # fmt: skip
