"""Durations as they are on real machines: drawn from lognormal distributions, hosts each at a pace of their own."""

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from tests.simulator.faults import Faults
from tests.simulator.program import Instruction, Job, Program


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithms of durations, and the hosts' paces by rank (times as long; 1 without).

    A collective's transfer is drawn once for all its ranks. A thing that is there with a fault and without is drawn
    alike. The fault `pace` makes a host's work take `factor` times as long.
    """

    seed: int = 0
    host: float = 0.15
    kernel: float = 0.02
    wire: float = 0.08
    paces: Sequence[float] = ()


PACES = (1.0, 1.2, 1.1, 1.3, 1.05, 1.5, 1.0, 1.15, 1.4, 1.0, 1.25, 1.1, 1.0, 1.35, 1.2, 1.05) * 4

PACES_OF_16 = (1.0, 1.1, 1.2, 1.5, 1.05, 1.3, 1.0, 1.4, 1.15, 1.25, 1.0, 1.1, 1.45, 1.2, 1.0, 1.35)


def unlike_hosts(seed: int) -> Noise:
    """Hosts at their own paces, a noisy network."""
    return Noise(seed, 0.25, 0.03, 0.12, PACES)


def like_hosts(seed: int) -> Noise:
    """Hosts that all have one pace."""
    return Noise(seed, 0.2, 0.03, 0.1)


def with_noise(job: Callable[..., Job], noise: Noise) -> Callable[..., Job]:
    """The job, by name and options, with noise."""
    return lambda *, faults=(), **options: noisy(job(faults=faults, **options), noise, faults)


def noisy(job: Job, noise: Noise, faults: Faults = ()) -> Job:
    """The job with durations drawn."""
    programs = tuple(_drawn(program, noise, faults) for program in job.programs)
    return replace(job, programs=programs, jitter=0.0, end_jitter_ns=8_000)


def _drawn(program: Program, noise: Noise, faults: Faults) -> Program:
    pace = noise.paces[program.rank] if noise.paces else 1.0
    pace *= math.prod(fault.factor for fault in faults if fault.what == "pace" and program.rank in fault.ranks)
    counts: Counter[Hashable] = Counter()
    made = []
    for each in program.instructions:
        if not each.ns or each.what == "aside":
            made.append(each)
            continue
        key, sigma = _key(program.rank, each), _sigma(each, noise)
        counts[key] += 1
        times = math.exp(sigma * random.Random(f"{noise.seed} {key} {counts[key]}").gauss(0, 1))
        made.append(replace(each, ns=round(each.ns * times * (pace if each.what == "host" else 1))))
    return Program(program.rank, made, program.launched)


def _key(rank: int, each: Instruction) -> Hashable:
    if each.comm is None or each.comm.sends or each.comm.receives:
        return (rank, each.what, each.name)
    return (each.comm.group.name, each.comm.collective)


def _sigma(each: Instruction, noise: Noise) -> float:
    if each.comm:
        return noise.wire
    return noise.host if each.what == "host" else noise.kernel
