"""What all ranks do other than training."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.faults import Fault
from tests.simulator.jobs import between_steps

MS = 1_000_000


def test_garbage_collection_in_every_step():
    (one,) = said(usual.ddp(ranks=2, steps=5, faults=(Fault("gc", 10 * MS, (0, 1)),)), "stalls")
    assert one.headline == "Garbage collection: 10.0 ms/step without GPU work."
    assert one.why == "gc.collect launches nothing meanwhile; GPUs are idle up to 10.0 ms/step of it."
    assert one.fix == "gc.freeze() and gc.disable(); gc.collect() on all ranks every N steps."
    assert 7.5 * MS < one.saves.low_ns < 10 * MS


def test_a_checkpoint_in_two_steps():
    (one,) = said(usual.ddp(ranks=2, steps=8, faults=(Fault("save", 20 * MS, (0, 1), (3, 6)),)), "stalls")
    assert one.headline == "Checkpoint stalls the GPUs 15.0 ms in steps 3 and 6."
    assert (
        one.why == "torch/serialization.py(900): save keeps all ranks longer in steps 3 and 6 than in the other steps."
    )
    assert one.steps == (3, 6)


def test_evaluation_takes_the_gpus():
    (one,) = said(between_steps.validates(), "stalls")
    assert one.headline == "Evaluation takes the GPUs 4.79 ms in steps 3 and 6."
    assert one.what_if == "analyze-traces what-if FOLDER --compute 2.45x --in-steps 3,6"


def test_one_rank_that_collects_garbage_is_a_straggler_instead():
    assert not said(usual.ddp(ranks=2, steps=5, faults=(Fault("gc", 10 * MS, (1,)),)), "stalls")
