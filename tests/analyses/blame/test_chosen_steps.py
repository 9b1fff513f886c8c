"""What mending a rank gains of the steps that were chosen, where it is late in all of them."""

import pytest

import traceanalyzer as ta
from tests import once
from tests.samples import folder
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.changes import read_change


def test_a_rank_that_is_late_in_all_chosen_steps_is_mended_in_those_before_too():
    """The host of one that was slow ran ahead of its GPU before the last step: mended, it would not have."""
    engine = once.results("ddp_straggler", ["replay"])["replay"].engine
    steps = engine.steps_after([(), (read_change("compute 1=peers"),), (read_change("compute 1=peers in steps 3"),)])
    before, mended, in_it_alone = steps[-1].tolist()  # of step 3
    chosen = run(ta.load(folder("ddp_straggler"), steps="last").ranks, ["episodes"])["episodes"].table
    assert chosen["gain_ns"].tolist() == [pytest.approx(before - mended, rel=0.02)]
    assert before - in_it_alone > 1.5 * (before - mended)
