"""Kinds of jobs with figures drawn at random, so that nothing can be tuned to them; truth is what was drawn."""

import random
from collections.abc import Callable

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    between_steps,
    experts,
    first_times,
    lengths,
    links,
    pipelines,
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

    def nobody(self, kinds: str, make: Callable[..., Job], *faults: Fault, **options: object) -> Case:
        return nobody(self.name, kinds, make, *faults, **options)


def _expert_groups(it: _Drawn) -> Case:
    late, other = it.one(0, 1, 2, 3), it.one(4, 5, 6, 7)
    return it.job(usual.ep_dp, Fault("copy", it.ms(5, 8), (late,)), left=(Fault("gc", it.ms(1.5, 3), (other,), (2,)),),
                  others=(other,))  # fmt: skip


def _moves_between_nodes(it: _Drawn) -> Case:
    after = Fault("throttle", 0, tuple(range(8, 16)), (3, 4, 5, 6, 7), it.chance.uniform(1.3, 1.6))
    before = Fault("throttle", 0, tuple(range(8)), (0, 1, 2), it.chance.uniform(1.3, 1.6))
    return it.job(usual.ddp, after, "same kernels", ranks=16, steps=8, layers=4, left=(before,),
                  others=tuple(range(8)))  # fmt: skip


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
    return it.nobody("", usual.ddp, ranks=it.one(4, 6, 8), steps=6, jitter=it.chance.uniform(0.03, 0.07))


def _one_data_group(it: _Drawn) -> Case:
    slow = it.one(0, 1)
    return it.job(
        links.slow_network, Fault("link", it.ms(2, 5), tuple(range(slow, 8, 2))), "reduce-scatter among ranks"
    )


def _warm_up(it: _Drawn) -> Case:
    return it.nobody("usable_steps", first_times.with_warm_up, times=it.chance.uniform(4, 9))


def _late_at_first(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("data", it.ms(6, 9), (it.one(0, 1, 2, 3),), (2,)), ranks=4, steps=6, first=2)


def _two_steps_of_a_pipeline(it: _Drawn) -> Case:
    return it.job(usual.pipelined, Fault("data", it.ms(10, 18), (it.one(0, 1, 3),)), steps=5, first=3)


def _lengths_and_heat(it: _Drawn) -> Case:
    return it.job(lengths.lengths_and_faults, Fault("throttle", 0, (it.one(0, 1, 2, 3),), None, it.chance.uniform(1.4, 1.7)),
                  "aten::linear", spread=0.1, seed=it.one(1, 2, 3))  # fmt: skip


def _last_microbatch(it: _Drawn) -> Case:
    return it.job(
        accumulating.late_last_microbatch, Fault("free", it.ms(6, 10), (it.one(0, 1, 2, 3),), it.some(7, 2)), steps=7
    )


def _missing_and_loader(it: _Drawn) -> Case:
    return it.job(usual.fsdp, Fault("data", it.ms(5, 9), (it.one(0, 1, 2),)), ranks=6, how=Capture(missing=(4,)),
                  has_gain=False)  # fmt: skip


def _messages_on_one_stream(it: _Drawn) -> Case:
    return it.nobody("pipeline_bubble", pipelines.interleaved, forward_ns=it.ms(0.3, 0.9),
                     microbatches=it.one(8, 12))  # fmt: skip


def _cpu_optimizer(it: _Drawn) -> Case:
    return it.job(usual.offload, Fault("host", it.ms(9, 15), (it.one(0, 1, 2),)), ranks=3, optimizer_ns=it.ms(1, 3))


def _pair_by_two_causes(it: _Drawn) -> Case:
    return it.job(usual.tp_dp, Fault("copy", it.ms(5, 7), (3,)), tensor=2, data=3,
                  left=(Fault("compute", it.ms(2, 4), (2,)),), others=(2,))  # fmt: skip


_KINDS: dict[str, Callable[[_Drawn], Case]] = {
    "two causes, each in its expert group": _expert_groups,
    "heat moves from one node to the other": _moves_between_nodes,
    "a hot expert and another rank's loader": _hot_expert_and_loader,
    "slow links of a group, a host of another": _slow_links_and_host,
    "saves every third step, another rank collects garbage": _saves_and_collects,
    "jitter of all": _jitter_of_all,
    "the network of one data group": _one_data_group,
    "a warm-up in the window": _warm_up,
    "the first recorded step late": _late_at_first,
    "two steps of a pipeline": _two_steps_of_a_pipeline,
    "lengths, and a hot GPU": _lengths_and_heat,
    "the last microbatch frees memory": _last_microbatch,
    "a missing file, another's loader": _missing_and_loader,
    "interleaved, messages on one stream": _messages_on_one_stream,
    "an optimizer on the CPU": _cpu_optimizer,
    "two ranks of a tensor group by two causes": _pair_by_two_causes,
}  # fmt: skip


def drawn_cases(seed: int = 0) -> tuple[Case, ...]:
    """A case of each kind, its figures drawn anew for each seed."""
    return tuple(make(_Drawn(name, seed)) for name, make in _KINDS.items())


DRAWN: tuple[Case, ...] = drawn_cases()
"""What has no gain in its truth: of a hot GPU with random lengths the capture does not tell how long its own sequences
are, and of one complete step of a pipeline not how far apart its ranks began."""
