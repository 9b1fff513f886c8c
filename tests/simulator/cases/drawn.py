"""Kinds of jobs with figures drawn at random, so that nothing can be tuned to them; truth is what was drawn."""

import random
from collections.abc import Callable

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import HEALTHY, LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    between_steps,
    experts,
    first_times,
    lengths,
    links,
    pipelines,
    replicated_pipelines,
)
from tests.simulator.program import Job

_WHAT = {"host": "log_metrics", "data": LOADER, "gc": "gc.collect", "compute": "mm", "free": "cudaFree", "copy": "HtoD"}


class _Drawn:
    """What is drawn for one case."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = f"{name} ({seed})" if seed else name
        self.chance = random.Random(f"{name} {seed}")

    def ms(self, least: float, most: float) -> int:
        return round(self.chance.uniform(least, most) * MS)

    def one(self, *choices: int) -> int:
        return self.chance.choice(choices)

    def some(self, steps: int, count: int) -> tuple[int, ...]:
        """Steps of which none is the capture's first or last."""
        return tuple(sorted(self.chance.sample(range(1, steps - 1), count)))

    def job(self, make: Callable[..., Job], fault: Fault, what: str = "", **options: object) -> Case:
        return case_of(self.name, make, fault, what or _WHAT[fault.what], **options)

    def nobody(self, says: str, make: Callable[..., Job], *faults: Fault, **options: object) -> Case:
        return nobody(self.name, says, make, *faults, **options)


def _expert_groups(it: _Drawn) -> Case:
    late, other = it.one(0, 1, 2, 3), it.one(4, 5, 6, 7)
    return it.job(usual.ep_dp, Fault("copy", it.ms(5, 8), (late,)), left=(Fault("gc", it.ms(1.5, 3), (other,), (2,)),),
                  others=(other,))  # fmt: skip


def _moves_between_nodes(it: _Drawn) -> Case:
    after = Fault("throttle", 0, tuple(range(8, 16)), (3, 4, 5, 6, 7), it.chance.uniform(1.3, 1.6))
    before = Fault("throttle", 0, tuple(range(8)), (0, 1, 2), it.chance.uniform(1.3, 1.6))
    return it.job(usual.ddp, after, "the same kernels take", ranks=16, steps=8, layers=4, left=(before,),
                  others=tuple(range(8)))  # fmt: skip


def _first_stage(it: _Drawn) -> Case:
    return it.job(usual.pipelined, Fault("data", it.ms(8, 20), (0,)), stages=it.one(3, 4, 5))


def _last_stage(it: _Drawn) -> Case:
    stages = it.one(3, 4, 5)
    return it.job(usual.pipelined, Fault("gc", it.ms(12, 20), (stages - 1,)), stages=stages)


def _hot_expert_and_loader(it: _Drawn) -> Case:
    hot, slow = it.chance.sample(range(4), 2)
    return it.job(experts.hot_expert, Fault("data", it.ms(9, 14), (slow,)), left=(Fault("compute", it.ms(1.5, 2.5), (hot,)),),
                  others=(hot,))  # fmt: skip


def _slow_links_and_host(it: _Drawn) -> Case:
    row = it.one(0, 1, 2)
    other = (4 * row + 5) % 12
    return it.job(links.links, Fault("link", it.ms(2.5, 4), tuple(range(4 * row, 4 * row + 4))), "all-gather among ranks",
                  left=(Fault("host", it.ms(0.5, 1.0), (other,)),), others=(other,))  # fmt: skip


def _saves_and_collects(it: _Drawn) -> Case:
    return it.job(between_steps.saves_with_barrier, Fault("save", it.ms(25, 40), (0,), (2, 5)), "save", steps=8,
                  left=(Fault("gc", it.ms(6, 10), (it.one(1, 2, 3),), (3,)),), others=(1, 2, 3))  # fmt: skip


def _jitter_of_all(it: _Drawn) -> Case:
    return it.nobody(HEALTHY, usual.ddp, ranks=it.one(4, 6, 8), steps=6, jitter=it.chance.uniform(0.03, 0.07))


def _one_data_group(it: _Drawn) -> Case:
    slow = it.one(0, 1)
    return it.job(
        links.slow_network, Fault("link", it.ms(2, 5), tuple(range(slow, 8, 2))), "reduce-scatter among ranks"
    )


def _warm_up(it: _Drawn) -> Case:
    return it.nobody("Step 0 is a warm-up", first_times.with_warm_up, times=it.chance.uniform(4, 9))


def _warm_up_and_late(it: _Drawn) -> Case:
    return it.nobody(
        "Step 0 is a warm-up", first_times.with_warm_up, Fault("host", it.ms(4, 8), (2,)), others=(2,), times=6.0
    )


def _late_at_first(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("data", it.ms(6, 9), (it.one(0, 1, 2, 3),), (2,)), ranks=4, steps=6, first=2)


def _two_steps_of_experts(it: _Drawn) -> Case:
    return it.job(usual.ep_dp, Fault("compute", it.ms(3, 5), (it.one(1, 6),)), steps=5, first=3)


def _two_steps_of_a_pipeline(it: _Drawn) -> Case:
    return it.job(usual.pipelined, Fault("data", it.ms(10, 18), (it.one(0, 1, 3),)), steps=5, first=3)


def _lengths_and_heat(it: _Drawn) -> Case:
    return it.job(lengths.lengths_and_faults, Fault("throttle", 0, (it.one(0, 1, 2, 3),), None, it.chance.uniform(1.4, 1.7)),
                  "aten::linear", spread=0.1, seed=it.one(1, 2, 3))  # fmt: skip


def _lengths_and_loader(it: _Drawn) -> Case:
    return it.job(lengths.lengths_and_faults, Fault("data", it.ms(6, 10), (it.one(0, 1, 2, 3),)), spread=0.15,
                  seed=it.one(4, 5, 6))  # fmt: skip


def _copies_now_and_then(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("copy", it.ms(5, 9), (it.one(0, 3, 5),), (1, 4, 7)), steps=10, layers=4)


def _a_whole_replica(it: _Drawn) -> Case:
    return it.job(replicated_pipelines.pp_dp, Fault("data", it.ms(8, 14), (it.one(0, 3),)))


def _last_microbatch(it: _Drawn) -> Case:
    return it.job(
        accumulating.late_last_microbatch, Fault("free", it.ms(6, 10), (it.one(0, 1, 2, 3),), it.some(7, 2)), steps=7
    )


def _missing_and_loader(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("data", it.ms(5, 9), (it.one(0, 1, 2),)), ranks=6, how=Capture(missing=(4,)),
                  has_gain=False)  # fmt: skip


def _messages_on_one_stream(it: _Drawn) -> Case:
    return it.nobody("follow each other on one stream", pipelines.interleaved, forward_ns=it.ms(0.3, 0.9),
                     microbatches=it.one(8, 12))  # fmt: skip


def _messages_apart(it: _Drawn) -> Case:
    return it.nobody("ipeline of ranks [0-9,]* waits [^.]*$|ipeline of ranks.*%.$", pipelines.interleaved,
                     forward_ns=it.ms(0.3, 0.9), is_one_stream=False)  # fmt: skip


def _a_replica_now_and_then(it: _Drawn) -> Case:
    return it.job(usual.hsdp, Fault("host", it.ms(6, 9), (8, 9, 10, 11)), steps=5)


def _cpu_optimizer(it: _Drawn) -> Case:
    return it.job(usual.offload, Fault("host", it.ms(9, 15), (it.one(0, 1, 2),)), ranks=3, optimizer_ns=it.ms(1, 3))


def _clocks_and_collection(it: _Drawn) -> Case:
    return it.job(usual.ddp, Fault("gc", it.ms(6, 12), (it.one(0, 3),), it.some(6, 1)), ranks=4, steps=6,
                  how=Capture(offset_ns={1: it.ms(20, 200), 3: -it.ms(20, 200)}))  # fmt: skip


def _cut_and_loader(it: _Drawn) -> Case:
    return it.job(usual.ddp, Fault("data", it.ms(5, 8), (it.one(0, 1),)), ranks=4, how=Capture(cut={2: 0.75}),
                  has_gain=False)  # fmt: skip


def _no_steps(it: _Drawn) -> Case:
    return it.job(usual.ddp, Fault("host", it.ms(5, 8), (it.one(0, 5),)), has_steps=False, has_gain=False)


def _pair_by_two_causes(it: _Drawn) -> Case:
    return it.job(usual.tp_dp, Fault("copy", it.ms(5, 7), (3,)), tensor=2, data=3,
                  left=(Fault("compute", it.ms(2, 4), (2,)),), others=(2,))  # fmt: skip


def _all_load_and_one_is_slow(it: _Drawn) -> Case:
    late = it.one(0, 1, 2, 3)
    every = Fault("data", it.ms(3, 5), (0, 1, 2, 3), (3,))
    return it.job(usual.ddp, Fault("compute", it.ms(3, 5), (late,)), ranks=4, steps=7, left=(every,))


def _half_frees(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("free", it.ms(4, 8), (4, 5, 6, 7)))


def _evaluates_on_a_stage(it: _Drawn) -> Case:
    return it.job(usual.pipelined, Fault("eval", it.ms(10, 16), (3,), it.some(6, 1)), "conv", steps=6)


def _noise_and_hosts(it: _Drawn) -> Case:
    return it.job(usual.ddp, Fault("host", it.ms(6, 9), (0, 1, 2, 3)), ranks=8, steps=6, jitter=0.04)


def _last_two(it: _Drawn) -> Case:
    return it.job(usual.ddp, Fault("compute", it.ms(3, 6), (it.one(0, 2),), (3, 4)), ranks=4, steps=6)


_KINDS: dict[str, Callable[[_Drawn], Case]] = {
    "two causes, each in its expert group": _expert_groups,
    "heat moves from one node to the other": _moves_between_nodes,
    "the first stage's loader": _first_stage,
    "the last stage's garbage": _last_stage,
    "a hot expert and another rank's loader": _hot_expert_and_loader,
    "slow links of a group, a host of another": _slow_links_and_host,
    "saves every third step, another rank collects garbage": _saves_and_collects,
    "jitter of all": _jitter_of_all,
    "the network of one data group": _one_data_group,
    "a warm-up in the window": _warm_up,
    "a warm-up, and a late host": _warm_up_and_late,
    "the first recorded step late": _late_at_first,
    "two steps of experts": _two_steps_of_experts,
    "two steps of a pipeline": _two_steps_of_a_pipeline,
    "lengths, and a hot GPU": _lengths_and_heat,
    "lengths, and a loader": _lengths_and_loader,
    "copies in every third step": _copies_now_and_then,
    "a replica of a pipeline": _a_whole_replica,
    "the last microbatch frees memory": _last_microbatch,
    "a missing file, another's loader": _missing_and_loader,
    "interleaved, messages on one stream": _messages_on_one_stream,
    "interleaved, messages apart": _messages_apart,
    "hosts of one replica": _a_replica_now_and_then,
    "an optimizer on the CPU": _cpu_optimizer,
    "clocks apart, garbage once": _clocks_and_collection,
    "a cut file, another's loader": _cut_and_loader,
    "no steps, a host": _no_steps,
    "two ranks of a tensor group by two causes": _pair_by_two_causes,
    "all load once, one computes": _all_load_and_one_is_slow,
    "half of the ranks free memory": _half_frees,
    "a stage evaluates once": _evaluates_on_a_stage,
    "noise, and half of the hosts": _noise_and_hosts,
    "two steps before the last": _last_two,
}  # fmt: skip


def drawn_cases(seed: int = 0) -> tuple[Case, ...]:
    """A case of each kind, its figures drawn anew for each seed."""
    return tuple(make(_Drawn(name, seed)) for name, make in _KINDS.items())


DRAWN: tuple[Case, ...] = drawn_cases()
"""What has no gain in its truth: of a hot GPU with random lengths the capture does not tell how long its own sequences
are, and of one complete step of a pipeline not how far apart its ranks began."""
