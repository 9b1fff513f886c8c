"""One rank's GPU, or some ranks', has more to compute: products, evaluation, averages, what people debug with."""

from tests.simulator.case import MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    between_steps,
    context_parallel,
    cubes,
    data_parallel,
    gpus,
    inputs,
    meshes,
    models,
    other_libraries,
    replicated_pipelines,
    rollouts,
    serving,
    sparse,
)
from tests.simulator.noise import like_hosts, unlike_hosts

KERNELS: tuple[Case, ...] = (
    nobody("features summed by few classes", "sparse_as_dense", sparse.pooled),
    case_of("drafted on one rank", serving.drafted, Fault("draft", 3 * MS, (0,)), "mm", cause="compute",
            noise=like_hosts(134)),
    case_of("one rank without latents", inputs.latents, Fault("encode", 5 * MS, (3,)), "conv", cause="compute",
            noise=unlike_hosts(141)),
    case_of("leaders of nodes, products of one behind them", data_parallel.led, Fault("compute", 4 * MS, (6,)), "mm",
            noise=unlike_hosts(302)),
    case_of("one rank searches its gradients", gpus.watched, Fault("anomaly", 3 * MS, (1,)), "isnan", cause="compute",
            noise=unlike_hosts(316)),
    case_of("late last microbatch, compute", accumulating.late_last_microbatch, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("ring, one rank's compute", context_parallel.ring, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("two models in turn, compute", models.two_models, Fault("compute", 2 * MS, (3,)), "mm"),
    case_of("tensor x pipeline x data, compute", cubes.cube, Fault("compute", 3 * MS, (5,)), "mm"),
    case_of("pipelines side by side, a stage", replicated_pipelines.pp_dp, Fault("compute", 4 * MS, (4,)), "mm"),
    case_of("evaluation by one rank in some steps", between_steps.evaluating, Fault("eval", 60 * MS, (0,), (1, 3)),
            "evaluate"),
    case_of("accumulating, compute", accumulating.accumulating, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("rank 0 evaluates before a barrier", between_steps.saves_with_barrier,
            Fault("eval", 12 * MS, (0,), (1, 3)), "conv"),
    case_of("edges exchanged with neighbours, a GPU", meshes.neighbours, Fault("compute", 3 * MS, (2,)), "mm"),
    # All of a role: that it acts for too long is not told from a job that is made so.
    nobody("actors and learners", "uneven_work", rollouts.actors_and_learners,
           Fault("act", 5 * MS, (2, 3)), others=(2, 3)),
    case_of("adapters, compute", models.frozen, Fault("compute", 3 * MS, (2,)), "mm"),
    case_of("deepep, one rank, compute", other_libraries.deep_ep, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("decoding, one rank, compute", other_libraries.decoding, Fault("compute", 1 * MS, (0,)), "mm"),
    case_of("groups that share ranks, on one stream", data_parallel.chained, Fault("compute", 4 * MS, (0,)), "mm"),
)  # fmt: skip
