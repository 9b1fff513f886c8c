"""Work that is spread unevenly: experts, lengths of sequences and answers, batches, shards."""

from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    context_parallel,
    experts,
    lengths,
    models,
    optimizers,
    rollouts,
)
from tests.simulator.noise import unlike_hosts

IMBALANCE: tuple[Case, ...] = (
    case_of("one rank's batch is larger", lengths.other_batch, Fault("batch", 0, (6,), None, 1.5), "[6144, 768]",
            cause="compute", how=Capture(arguments="host")),
    case_of("one microbatch more", accumulating.uneven_accumulation, Fault("micro", 0, (2,)), "aten::linear",
            cause="compute"),
    nobody("a causal mask in parts", "straggler uneven_work", context_parallel.causal_ring, others=(2, 3)),
    case_of("keys and values, long documents", context_parallel.keys_and_values, Fault("long", 6 * MS, (2,)),
            "_flash_attention_forward", cause="compute", noise=unlike_hosts(131)),
    nobody("one of four ranks has the longest lengths by chance", "uneven_work", lengths.lengths_and_faults,
            spread=0.6, seed=7),
    case_of("a long document on both ranks of a pair", context_parallel.documents,
            Fault("long", 5 * MS, (2, 3), (1, 2)), "_flash_attention_forward", cause="compute", steps=6,
            noise=unlike_hosts(409)),
    case_of("a hot expert", experts.hot_expert, Fault("compute", 3 * MS, (1,)), "_grouped_mm"),
    case_of("rollouts, one rank's answers are longer", rollouts.rollouts, Fault("answers", 4 * MS, (3,)), "generate",
            cause="compute and host"),
    nobody("rollouts, answers of random lengths", "blocking_calls launch_bound uneven_work", rollouts.rollouts, spread=30),
    case_of("embeddings, one rank's tables", models.recommending, Fault("tables", 3 * MS, (1,)), "_embedding_bag",
            cause="compute"),
    case_of("uneven shards of the optimizer", optimizers.sharded_optimizer, Fault("shard", 3 * MS, (3,)), "adamw",
            cause="compute"),
    nobody("a smaller last batch", "", models.frozen, Fault("compute", 3 * MS, FOUR, (0, 1, 2, 3, 4))),
    case_of("rollouts by graphs, longer answers in two steps", rollouts.rolled_out,
            Fault("answers", 12 * MS, (3,), (1, 3)), "generate", cause="compute", steps=6),
    nobody("rollouts by graphs, all lengths differ", "uneven_work", rollouts.rolled_out,
            own_tokens=((60, 75, 66, 90), (92, 61, 70, 64), (66, 88, 60, 71), (63, 70, 95, 62), (81, 60, 67, 74))),
    nobody("experts' loads differ a little", "exposed_communication uneven_work", experts.uneven_experts),
    case_of("experts' loads differ a little, one is hot", experts.uneven_experts, Fault("hot", 2 * MS, (1,)),
            "_grouped_mm", cause="compute"),
)  # fmt: skip
