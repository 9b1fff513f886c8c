"""Transformers with a known fault, or none; each lot was committed before any report of it was seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulator import transformer_jobs as jobs
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.program import Job
from tests.simulator.spoiled import edited, without_shapes
from tests.simulator.third_cases import alike, healthy, noise_of
from tests.simulator.unseen_cases import with_noise

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


def autograd(ranks: int) -> Any:
    """Backward has a thread of its own, as in PyTorch."""
    return edited(range(ranks), _on_their_thread)


def _both(*spoils: Any) -> Any:
    def spoil(folder: Path) -> None:
        for each in spoils:
            each(folder)

    return spoil


def _numa(**options: object) -> Job:
    job = with_noise(usual.tp_dp, alike(523))(**options)
    return replace(job, hosts=tuple(f"node{rank // 4}" for rank in range(8)))


TRANSFORMER_CASES: tuple[Case, ...] = (
    # Sharded and clipped.
    healthy("healthy, clipped by a norm that is read", "", jobs.clipped, noise=noise_of(501), spoil=autograd(8)),
    healthy("clipped, a host pauses within its lead", "", jobs.clipped, Fault("host", 6 * MS, (3,), (3,)), is_read=False, layers=4,
            noise=alike(502)),
    replace(case_of("clipped, attention goes the slow way on a rank", jobs.clipped, Fault("math", 5 * MS, (5,)), "attention_math",
                    cause="compute", noise=noise_of(503)), spoil=autograd(8)),
    replace(case_of("clipped, a loader, autograd's thread, clocks apart", jobs.clipped, Fault("data", 7 * MS, (2,)), LOADER, noise=noise_of(504),
                    how=_APART), spoil=autograd(8)),
    replace(case_of("clipped, throttled from the middle on, no shapes", jobs.clipped, Fault("throttle", 0, (6,), (3, 4, 5, 6), 1.4),
                    "the same kernels take", steps=7, noise=noise_of(505), how=_APART), spoil=_both(autograd(8), without_shapes(*_EIGHT))),
    case_of("clipped, products always, garbage of another once", jobs.clipped, Fault("compute", 3 * MS, (6,)), "mm",
            left=(Fault("gc", 10 * MS, (1,), (2,)),), others=(1,), noise=noise_of(506)),
    case_of("clipped, one rank compiles again", jobs.clipped, Fault("compile", 60 * MS, (0,), (3,)), "compile", cause="host", noise=noise_of(507)),
    Case("clipped, all compile again, not all as long", lambda own: jobs.clipped(faults=own, noise=noise_of(508)),
         tuple(Fault("compile", (57 + rank % 4) * MS, (rank,), (3,)) for rank in range(8)), Truth(says="", others=(3, 7))),
    case_of("clipped, allocator retries in two steps", jobs.clipped, Fault("free", 8 * MS, (4,), (2, 4)), "cudaFree", steps=7, noise=noise_of(509)),
    case_of("clipped, copied out beside its kernels", jobs.clipped, Fault("snapshot", 0, (0,), (2, 3)), "", cause="compute", is_small=True,
            noise=noise_of(510)),
    replace(case_of("clipped, a loader, ranges alone", jobs.clipped, Fault("data", 7 * MS, (2,)), "", noise=noise_of(511),
                    how=Capture(has_payloads=True)), by="nsys"),
    # Micro-batches.
    healthy("lengths go round within a step", "", jobs.accumulated, lengths=(0.5, 0.8, 1.2, 1.5), noise=noise_of(512)),
    case_of("lengths go round, one rank's are all longer", jobs.accumulated, Fault("long", 6 * MS, (2,)), "", cause="compute",
            lengths=(0.5, 0.8, 1.2, 1.5), noise=noise_of(513)),
    healthy("the last batch of a rank is half as long", "", jobs.accumulated, Fault("fewer", 0, (1,), (3,)), ranks=2, noise=noise_of(514)),
    healthy("garbage on all ranks in one step", "", jobs.accumulated, Fault("gc", 9 * MS, (0, 1, 2, 3), (2,)), noise=noise_of(515)),
    # Networks.
    healthy("a crowded network in two steps", "", jobs.between_nodes, Fault("crowded", 8 * MS, _EIGHT, (3, 4)), noise=noise_of(516)),
    case_of("a crowded network in two steps, a late host in another", jobs.between_nodes, Fault("host", 14 * MS, (5,), (2,)), "log_metrics",
            left=(Fault("crowded", 4 * MS, _EIGHT, (4,)),), noise=noise_of(517)),
    # Evaluation.
    healthy("healthy, all evaluate between steps", "", jobs.evaluated, noise=noise_of(518)),
    case_of("all evaluate between steps, one has four batches more", jobs.evaluated, Fault("batches", 4, (1,), (2,)), "", cause="compute",
            noise=noise_of(519)),
    # Stages.
    healthy("labels are loaded within the bubble", "ipeline|ommunication|ll-reduce", jobs.staged, Fault("labels", 1_500_000, (6, 7)), noise=alike(520)),
    case_of("labels take longer than the bubble", jobs.staged, Fault("labels", 8 * MS, (6, 7)), LOADER, cause="data", noise=alike(521)),
    # Experts.
    healthy("healthy, experts' loads drawn in each layer", "", jobs.experts, noise=noise_of(522)),
    case_of("experts' loads drawn in each layer, a hot GPU", jobs.experts, Fault("throttle", 0, (3,), None, 1.4), "the same kernels take",
            noise=noise_of(523)),
    # Hosts.
    case_of("tensor x data, a node's hosts much slower", _numa, Fault("pace", 0, (4, 5, 6, 7), None, 12.0), "node1", cause="host",
            tensor=4, data=2),
    healthy("healthy, replicas that serve alone", "", jobs.alone, noise=noise_of(525)),
    healthy("replicas that serve alone, one throttled", "", jobs.alone, Fault("throttle", 0, (2,), None, 1.4), others=(2,), noise=noise_of(526)),
)  # fmt: skip
