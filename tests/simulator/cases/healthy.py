"""Jobs in which nobody is late and nothing is wrong: the report has to keep silent, or to say what a step consists of."""

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import APART, MS, Case, nobody
from tests.simulator.jobs import (
    accumulating,
    between_steps,
    context_parallel,
    data_parallel,
    launches,
    models,
    optimizers,
    serving,
    sharded,
)
from tests.simulator.noise import PACES_OF_16, Noise, like_hosts, unlike_hosts, with_noise

HEALTHY: tuple[Case, ...] = (
    nobody("healthy, gathered ahead", "", sharded.prefetching, noise=unlike_hosts(109), how=APART),
    nobody("healthy, a sharded optimizer", "", optimizers.in_shards, noise=unlike_hosts(118)),
    nobody("healthy, keys and values on streams", "", context_parallel.keys_and_values, noise=unlike_hosts(129),
            how=APART),
    nobody("healthy, served by graphs", "", serving.served, noise=like_hosts(132)),
    nobody("healthy, verified without drafts", "", serving.drafted, noise=like_hosts(135)),
    nobody("healthy, adversaries", "", models.adversaries, noise=unlike_hosts(138)),
    nobody("healthy, micro-steps, threads write", "", accumulating.micro_steps, writes=True, noise=unlike_hosts(145)),
    nobody("healthy, leaders of nodes", "", data_parallel.led, noise=unlike_hosts(301)),
    nobody("ring, even", "", context_parallel.ring),
    nobody("uneven prefetch, even", "", sharded.uneven_prefetch),
    nobody("all validate every third step", "stalls", between_steps.validates),
    nobody("two models in turn", "", models.two_models),
    nobody("accumulating, even", "", accumulating.accumulating),
    nobody("broadcasts, even", "", data_parallel.broadcasts),
    nobody("adapters", "", models.frozen),
    nobody("healthy, two ranks, two steps", "", with_noise(usual.ddp, Noise(11, host=0.3, paces=(1.0, 1.4))), ranks=2,
            steps=3, first=1),
    nobody("healthy, experts with noise", "", with_noise(usual.ep_dp, Noise(16, 0.2, 0.06, 0.15, PACES_OF_16)),
            expert=4, data=2, steps=4),
    nobody("healthy, limited prefetch", "", sharded.limited, noise=Noise(17, 0.3, 0.03, 0.1, PACES_OF_16), steps=3),
    nobody("healthy, replayed graphs, clocks apart", "", launches.replayed,
            noise=Noise(19, 0.3, 0.03, 0.1, (1.0, 1.5, 1.2, 1.1)), how=Capture(offset_ns={1: 4 * MS, 2: -7 * MS})),
)  # fmt: skip
