"""Pipelines: bubbles and heavy stages, which are nobody's fault."""

from tests.simulator import workloads as usual
from tests.simulator.case import MS, Case, nobody
from tests.simulator.faults import Fault, Faults
from tests.simulator.jobs import cubes, inputs, pipelines, replicated_pipelines
from tests.simulator.noise import like_hosts, unlike_hosts
from tests.simulator.program import Job


def _recomputing(faults: Faults = ()) -> Job:
    return replicated_pipelines.unlike_stages(recomputes=(2,) if faults else (), data=1)


PIPELINES: tuple[Case, ...] = (
    nobody("1f1b, even", "pipeline_bubble pipeline_stages", usual.pipelined, stages=4, microbatches=8, steps=4),
    nobody("1f1b, the last stage loads within its bubble", "pipeline_bubble", usual.pipelined,
            Fault("data", 1_500_000, (3,))),
    nobody("hosts of a stage with more layers", "pipeline_stages", pipelines.launching,
            Fault("moved", 2, (0,)), others=(0,), is_gained=True, noise=like_hosts(330)),
    nobody("the first stages are frozen", "pipeline_stages",
            replicated_pipelines.unlike_stages, frozen=2),
    nobody("healthy, encoders keep up", "", inputs.encoded, noise=unlike_hosts(201)),
    nobody("encoders are behind", "pipeline_stages", inputs.encoded,
            Fault("pictures", 5 * MS, (0, 1)), noise=unlike_hosts(202)),
    nobody("healthy, experts in stages", "", cubes.experts_in_stages, noise=unlike_hosts(203)),
    nobody("a light stage throttled", "pipeline_bubble pipeline_stages", pipelines.light_first, Fault("throttle", 0, (0,), None, 1.8),
            others=(0,), noise=unlike_hosts(325)),
    nobody("tensor x pipeline x data, even", "pipeline_bubble pipeline_stages exposed_communication", cubes.cube),
    nobody("pipelines side by side, even", "pipeline_bubble pipeline_stages", replicated_pipelines.pp_dp),
    nobody("the last stage has the vocabulary", "pipeline_stages", pipelines.with_loss),
    nobody("tensor in pipeline, a heavy stage", "pipeline_stages", cubes.tensor_in_pipeline,
            stage_ns=(300_000, 500_000, 300_000)),
    nobody("zero bubble, a heavy first stage", "pipeline_bubble pipeline_stages", pipelines.zero_bubble, first_ns=350_000),
    nobody("one stage of four recomputes", "pipeline_stages recomputation", _recomputing, Fault("again", 0, (2,))),
)  # fmt: skip
