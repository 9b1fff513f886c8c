"""Gradients of every micro-step, parameters gathered again, more exchanges than peers."""

from tests.findings.of_job import said
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, sharded

KIND = "redundant_communication"


def test_gradients_are_exchanged_in_every_micro_step():
    (found,) = said(accumulating.redundant_exchanges(), KIND)
    assert found.headline == "Redundant all-reduces: gradients are exchanged in all 4 micro-steps."
    assert (
        found.why
        == "Each rank exchanges gradients after each of 4 micro-steps; after the last one alone it would be 72.0 MB less per step."
    )
    assert found.fix.startswith("model.no_sync() (DDP)")
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_reduce@3/4=none"
    assert found.leads


def test_parameters_are_gathered_again():
    (found,) = said(sharded.regathered(faults=(Fault("again", 0, (0, 1, 2, 3)),)), KIND)
    assert found.headline == "Parameters are gathered again in backward."
    assert "Backward all-gathers 975 MB/step on each rank" in found.why
    assert found.fix.startswith("reshard_after_forward=False (FSDP2)")
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_gather@backward=none"
    assert not said(sharded.regathered(), KIND)


def test_a_group_exchanges_more_often_than_its_sisters():
    (found,) = said(accumulating.accumulated(faults=(Fault("sync", 0, (1, 3)),)), KIND)
    assert found.headline == "Ranks 1 and 3 (half of the job) run 4× as many all-reduces as peers."
    assert found.why == "They run 4 all-reduces of 120 MB/step, other groups of their role 1."
    assert found.ranks == (1, 3)
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_reduce@3/4@1,3=none"
