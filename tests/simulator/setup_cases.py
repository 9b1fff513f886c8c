"""Jobs of which a part is set up otherwise than the rest, or wrongly; the truth beside, written before any report."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulator import blind_jobs as blind
from tests.simulator import rare_jobs as rare
from tests.simulator import setup_jobs as jobs
from tests.simulator import spoiled, wire_jobs
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

_HEALTHY = "A step takes|model FLOPs"
_HIDDEN = "overlaps|ommunication"
_EVERY = (0, 1, 2, 3)


def _nobody(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None,
            others: tuple[int, ...] = (), spoil: spoiled.Spoil | None = None, **options: object) -> Case:  # fmt: skip
    return Case(name, lambda own: job(faults=own, **options), faults, Truth(says=says, others=others), how or Capture(),
                spoil=spoil)  # fmt: skip


def _spoiled(
    name: str, spoil: spoiled.Spoil, job: Callable[..., Job], fault: Fault, what: str, **options: object
) -> Case:
    return replace(case_of(name, job, fault, what, **options), spoil=spoil)  # type: ignore[arg-type]  # options are the job's


def _of_device(*ranks: int, **properties: object) -> spoiled.Spoil:
    return spoiled.edited(ranks, lambda document: document["deviceProperties"][0].update(properties))


def _slice(folder: Path) -> None:
    _of_device(0, 2, 3, numSms=132)(folder)
    _of_device(1, numSms=60)(folder)


def _on_host(device: int | None, rank: int) -> spoiled.Spoil:
    """Of four GPUs that each rank sees it runs on one; of one, on that."""

    def change(document: dict[str, Any]) -> None:
        count = 1 if device is None else 4
        document["deviceProperties"] = [{"id": number, "name": "NVIDIA H200"} for number in range(count)]
        document["hostname"] = "b07"
        for event in document["traceEvents"]:
            if "device" in event["args"]:
                event["args"]["device"] = device or 0

    return spoiled.edited((rank,), change)


def _on_one(folder: Path) -> None:
    for rank in range(4):
        _on_host(min(rank, 2), rank)(folder)


def _hidden_from_each_other(folder: Path) -> None:
    for rank in range(4):
        _on_host(None, rank)(folder)


def _recomputing(faults: Faults = ()) -> Job:
    return blind.staged(recomputes=(2,) if faults else (), data=1)


_EXCHANGED: tuple[Case, ...] = (
    _nobody("parameters gathered again in backward", "gathered twice", jobs.regathered, Fault("again", 0, _EVERY)),
    _nobody("parameters kept after forward", "All-gathers", jobs.regathered),
    _nobody("gathers and reductions in one queue", "All-gathers .20 a step", jobs.queued),
    _nobody("gradients in pieces of 8 MB", "66 GB/s", jobs.medium),
    case_of("gradients in pieces of 8 MB, a loader", jobs.medium, Fault("data", 9 * MS, (2,)), LOADER),
    case_of("one data group reduces in each micro-step", jobs.accumulated, Fault("sync", 0, (1, 3)), "4 all-reduces", cause="transfer"),
    case_of("one data group of four reduces in each micro-step", jobs.accumulated, Fault("sync", 0, (2, 6)), "4 all-reduces", cause="transfer",
            tensor=4),
    case_of("a loader, every data group reduces in each micro-step", jobs.accumulated, Fault("data", 8 * MS, (1,)), LOADER,
            left=(Fault("sync", 0, _EVERY),)),
    case_of("slow links of one shard of four", jobs.half_linked, Fault("link", 6 * MS, _EVERY), "all-gather among ranks 0 to 3"),
    case_of("slightly slow links of one shard of four", jobs.half_linked, Fault("link", 2 * MS, (8, 9, 10, 11)),
            "all-gather among ranks 8 to 11", steps=3),
    case_of("slow links of two ranks of four", jobs.half_linked, Fault("link", 2 * MS, (2, 3)), "all-gather among ranks 2 and 3",
            ranks=4, shard=2, steps=3),
    case_of("half-rate links of one node of two", partial(wire_jobs.mesh, of="tp", tensor=4, data=2, tensor_ns=150_000),
            Fault("link", 1_500_000, (4, 5, 6, 7)), "all-reduce among ranks 4 to 7", steps=3),
)  # fmt: skip

_GPUS: tuple[Case, ...] = (
    _spoiled("a MIG slice", _of_device(2, name="NVIDIA H200 MIG 3g.71gb"), usual.ddp, Fault("throttle", 0, (2,), None, 1.9),
             "MIG", ranks=4),
    _spoiled("a slice of a GPU, by its multiprocessors", _slice, usual.ddp, Fault("throttle", 0, (1,), None, 1.9), "smaller (60 multiprocessors",
             ranks=4, steps=3),
    _nobody("two ranks on one GPU", "Ranks 2 and 3 run on one GPU", usual.ddp, Fault("throttle", 0, (2, 3), None, 1.9), ranks=4, steps=3,
            others=(2, 3), spoil=_on_one),
    _nobody("every rank's GPU is its number 0", _HEALTHY, usual.ddp, ranks=4, steps=3, spoil=_hidden_from_each_other),
    case_of("a throttled rank of a tensor group", usual.tp_dp, Fault("throttle", 0, (6,), None, 1.35), "the same kernels take 1.3",
            tensor=4, data=2, steps=3),
    case_of("graphs on some ranks only, one is throttled", jobs.replayed, Fault("throttle", 0, (1,), None, 1.4),
            "the same kernels take 1.4", left=(Fault("eager", 0, (2, 3)),), others=(2, 3)),
    case_of("graphs on some ranks only, a host", jobs.replayed, Fault("host", 6 * MS, (0,)), "log_metrics",
            left=(Fault("eager", 0, (2, 3)),)),
    _nobody("graphs on some ranks only, even", _HIDDEN, jobs.replayed, Fault("eager", 0, (1,))),
    _nobody("one stage of four recomputes", "tage 2.*recomputes", _recomputing, Fault("again", 0, (2,))),
    _nobody("experts' loads differ a little", _HIDDEN, jobs.experts),
    case_of("experts' loads differ a little, one is hot", jobs.experts, Fault("hot", 2 * MS, (1,)), "_grouped_mm", cause="compute"),
    # Of two ranks whose loads differ by chance a gain holds this chance, too.
    case_of("two ranks, experts' loads differ, one is hot", jobs.experts, Fault("hot", 2 * MS, (0,)), "_grouped_mm", cause="compute",
            ranks=2, steps=3, has_gain=False),
)  # fmt: skip

_STEPS: tuple[Case, ...] = (
    case_of("one rank recorded three steps of six", usual.ddp, Fault("host", 5 * MS, (1,)), "log_metrics", ranks=4, steps=6,
            how=Capture(end_ns={2: 38 * MS}), has_gain=False),
    case_of("the late rank recorded fewer steps", usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics", ranks=4, steps=6,
            how=Capture(end_ns={2: 48 * MS}), has_gain=False),
    _spoiled("folders of nodes, ranks within them", spoiled.of_nodes(2, 4), usual.ddp, Fault("compute", 3 * MS, (3,)), "mm", ranks=4),
    _spoiled("folders of hosts by their names, tensor x data", spoiled.of_nodes(4, 8, "hgx-a{}1"), usual.tp_dp, Fault("gc", 6 * MS, (6,)), "gc.collect",
             tensor=4, data=2),
)  # fmt: skip

_HIDDEN_BEHIND: tuple[Case, ...] = (
    case_of("a GPU behind a loader", usual.ddp, Fault("data", 12 * MS, (1,)), LOADER, ranks=4, steps=4,
            left=(Fault("throttle", 0, (3,), None, 1.3),), others=(3,)),
    _nobody("a throttled GPU behind everybody's loaders", "data|load", usual.ddp, Fault("data", 30 * MS, _EVERY),
            Fault("throttle", 0, (1,), None, 1.3), ranks=4, steps=4, others=(1,)),
    _nobody("a mask of one rank behind all hosts", "host", jobs.masked, Fault("mask", 1 * MS, (2,)), others=(2,)),
    case_of("a mask of one rank behind another's host", jobs.masked, Fault("slow", 5 * MS, (1,)), "model.py(12): block", cause="host",
            left=(Fault("mask", 3 * MS, (3,)),), others=(3,)),
    _nobody("an optimizer in a loop", r"hosts need .*while (its host is|their hosts are) in Optimizer\.step", jobs.looped_optimizer),
)  # fmt: skip

_HOSTS: tuple[Case, ...] = (
    case_of("hosts meet in an all-reduce of the CPU, a loader", partial(rare.meeting_hosts, name="allreduce"),
            Fault("data", 6 * MS, (1,)), LOADER, ranks=2, steps=3),
    case_of("hosts meet in a broadcast of the CPU, garbage", partial(rare.meeting_hosts, name="broadcast"),
            Fault("gc", 6 * MS, (3,)), "gc.collect", steps=4),
    case_of("another thread decodes meanwhile", jobs.decoding_aside, Fault("gil", 8 * MS, (1,)), "prefetch.py(41): decode", cause="host"),
    case_of("a thread waits meanwhile", jobs.decoding_aside, Fault("gil", 8 * MS, (1,)), "no range, operator or call", cause="host",
            aside="threading.py(355): wait"),
    case_of("nothing recorded of the host meanwhile", jobs.decoding_aside, Fault("gil", 8 * MS, (1,)), "no range, operator or call",
            cause="host", aside=""),
)  # fmt: skip

SETUP_CASES: tuple[Case, ...] = (*_EXCHANGED, *_GPUS, *_STEPS, *_HIDDEN_BEHIND, *_HOSTS)
