"""Pipelines: bubbles and heavy stages, which are nobody's fault."""

from tests.simulator import workloads as usual
from tests.simulator.case import MS, Case, Truth, nobody
from tests.simulator.faults import Fault, Faults
from tests.simulator.jobs import cubes, inputs, megatron, pipelines, replicated_pipelines, serving
from tests.simulator.noise import PACES, PACES_OF_16, Noise, like_hosts, unlike_hosts, with_noise
from tests.simulator.program import Job


def _recomputing(faults: Faults = ()) -> Job:
    return replicated_pipelines.unlike_stages(recomputes=(2,) if faults else (), data=1)


PIPELINES: tuple[Case, ...] = (
    nobody("a pipeline, all evaluate in a step", "In step 2 all 4 GPUs compute 20.* evaluate", usual.pipelined,
            Fault("eval", 20 * MS, (0, 1, 2, 3), (2,)), steps=5),
    nobody("1f1b, even", "pipeline", usual.pipelined, stages=4, microbatches=8, steps=4),
    nobody("1f1b, the last stage loads within its bubble", "^The pipeline of ranks", usual.pipelined,
            Fault("data", 1_500_000, (3,))),
    nobody("1f1b, two stages load within their bubbles", "^The pipeline of ranks", usual.pipelined,
            Fault("data", 1_200_000, (2, 3))),
    nobody("hosts of a stage with more layers", r"Stage 0 \(rank 0\) computes", pipelines.launching,
            Fault("moved", 2, (0,)), others=(0,), is_gained=True, noise=like_hosts(330)),
    nobody("1f1b, one heavy stage", "tage 3", usual.pipelined, stages=4, microbatches=8, steps=4,
            stage_ns=[500_000] * 3 + [800_000]),
    nobody("one stage recomputes, two replicas", "recompute", replicated_pipelines.unlike_stages, recomputes=(1,)),
    nobody("the first stages are frozen", r"Stages 2 and 3 \(ranks 2, 3, 6 and 7\)",
            replicated_pipelines.unlike_stages, frozen=2),
    nobody("healthy, interleaved with noise", "ipeline|tage",
            with_noise(usual.pipelined, Noise(39, 0.25, 0.03, 0.1, PACES)), chunks=2, steps=3),
    # Run without any all-gather, the first is 1.02 ms a step shorter: either bound may come first.
    nobody("healthy, a cube of 16", "ipeline|All-gathers", cubes.interleaved_cube, noise=unlike_hosts(101)),
    nobody("healthy, a cube of 32", "ipeline|All-gathers", cubes.interleaved_cube, tensor=4, noise=unlike_hosts(102)),
    nobody("a cube, a heavy stage", "tage 2", cubes.interleaved_cube, stage_ns=(400_000, 400_000, 650_000, 400_000),
            noise=unlike_hosts(108)),
    nobody("healthy, encoders keep up", "", inputs.encoded, noise=unlike_hosts(201)),
    nobody("encoders are behind", r"tage 0 \(ranks 0 and 1\) computes", inputs.encoded,
            Fault("pictures", 5 * MS, (0, 1)), noise=unlike_hosts(202)),
    nobody("healthy, experts in stages", "", cubes.experts_in_stages, noise=unlike_hosts(203)),
    nobody("healthy, a cube of 48", "ipeline", cubes.interleaved_cube, tensor=4, stages=3, data=4, micro=6,
            noise=unlike_hosts(225)),
    nobody("a light stage throttled", "ipeline", pipelines.light_first, Fault("throttle", 0, (0,), None, 1.8),
            others=(0,), noise=unlike_hosts(325)),
    # The first stage runs three forward passes more in the first step: the table of who is awaited says so, no sentence does.
    nobody("healthy, a pipeline never emptied", "", pipelines.unflushed, others=(0,), noise=unlike_hosts(326)),
    nobody("a pipeline never emptied, a heavy stage", "tage 2", pipelines.unflushed, others=(0,),
            stage_ns=(500_000, 500_000, 650_000, 500_000), noise=unlike_hosts(327)),
    nobody("healthy, hosts wait for messages", "ipeline", pipelines.stopping, noise=like_hosts(328)),
    nobody("healthy, replicas", "", replicated_pipelines.replicas, noise=unlike_hosts(405)),
    nobody("tensor x pipeline x data, even", "ipeline", cubes.cube),
    nobody("pipelines side by side, a heavy stage", r"Stage 2 \(ranks 2 and 5\) computes up to",
            replicated_pipelines.pp_dp, heavy=(2, 1.6)),
    nobody("pipelines side by side, even", "ipeline", replicated_pipelines.pp_dp),
    nobody("prefill and decode on other ranks", "prefill|Stage 0|anks 0 and 1|A step takes|pipeline",
            serving.prefill_apart),
    nobody("the last stage has the vocabulary", "tage 3", pipelines.with_loss),
    nobody("the last stage has the vocabulary, interleaved", "tage 3|ank 3", pipelines.with_loss, chunks=2),
    nobody("tensor in pipeline, a heavy stage", "tage 1", cubes.tensor_in_pipeline,
            stage_ns=(300_000, 500_000, 300_000)),
    nobody("zero bubble, a heavy first stage", "tage 0", pipelines.zero_bubble, first_ns=350_000),
    nobody("zero bubble, a heavy last stage", "tage 3", pipelines.zero_bubble, last_ns=450_000),
    nobody("healthy, a pipeline with noise", "ipeline|bubble",
            with_noise(usual.pipelined, Noise(15, 0.2, 0.04, 0.1, PACES_OF_16)), steps=3),
    nobody("stages of unequal gradients, links alike", "ipeline", replicated_pipelines.linked,
            elements=(120_000_000, 40_000_000, 40_000_000, 80_000_000)),
    Case("megatron, interleaved", lambda _: megatron.interleaved(), (),
            Truth(says="more in collectives among its stages .14 % expected of 6 stages on 3 ranks and 6 microbatches")),
    nobody("one stage of four recomputes", "tage 2.*recomputes", _recomputing, Fault("again", 0, (2,))),
)  # fmt: skip
