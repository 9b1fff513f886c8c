"""Bubbles of pipelines: those of one schedule are one finding."""

import pytest
from traceanalyzer.findings.uneven_stages import pipeline_imbalance

from tests.simulator import run
from tests.simulator.analysed import analysed
from tests.simulator.jobs.pipelines import interleaved, zero_bubble
from traceanalyzer.findings import pipelines as findings_pipelines


@pytest.mark.parametrize("is_one_stream", [True, False])
def test_messages_on_one_stream_are_said_to_hold_each_other_up(is_one_stream):
    """What that costs is the difference of the two jobs, up to what the messages themselves take."""
    names = ["pipelines", "pipeline", "episodes", "replay", "collectives"]
    truth, results = analysed(interleaved(steps=3, is_one_stream=is_one_stream), *names)
    (found,) = findings_pipelines.pipeline_bubble(**{name: results[name] for name in names})
    assert ("follow each other on one stream" in found.title) is is_one_stream
    if is_one_stream:
        apart = run(interleaved(steps=3, is_one_stream=False))
        cost_ns = (_last_ns(truth) - _last_ns(apart)) / 3
        assert found.gain_ns == pytest.approx(cost_ns, rel=0.15)
        assert "a stream of their own" in found.recommendation


def _last_ns(job):
    return max(op.end_ns for ops in job.ops.values() for op in ops)


@pytest.mark.parametrize(
    ("heavy", "advises"), [({"first_ns": 350_000}, None), ({"last_ns": 450_000}, "Move layers from stage 3")]
)
def test_layers_are_moved_only_where_even_stages_gain(heavy, advises):
    """With weights' gradients behind those of inputs a first stage that is a sixth heavier costs nothing."""
    _, results = analysed(
        zero_bubble(**heavy), "pipelines", "pipeline", "mfu", "episodes", "replay", "pipeline_messages"
    )
    (found,) = pipeline_imbalance(**results)
    assert ("even stages gain nothing" in found.title) == (advises is None)
    assert found.recommendation is None if advises is None else found.recommendation.startswith(advises)
