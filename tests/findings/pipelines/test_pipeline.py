"""Bubbles of pipelines: those of one schedule are one finding."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests import once
from tests.simulator import run
from tests.simulator.analysed import analysed
from tests.simulator.jobs.pipelines import interleaved, zero_bubble
from traceanalyzer.analyses.operators.mfu import Mfu
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipelines import Pipelines
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.findings.late.heavy_stages import pipeline_name
from traceanalyzer.findings.pipelines import pipeline as rules
from traceanalyzer.findings.pipelines import uneven_stages
from traceanalyzer.findings.pipelines.uneven_stages import pipeline_imbalance


def beside(results, bubble_ns=0):
    """A second pipeline of ranks 2 and 3 that does the same, and waits for longer by `bubble_ns`."""
    one, stages = results["pipelines"].table, results["pipeline"].table
    other = one.assign(pipeline=1, ranks="2,3", bottleneck_rank=3, bubble_ns=one["bubble_ns"] + bubble_ns)
    moved = stages.assign(pipeline=1, rank=stages["rank"] + 2)
    return Pipelines(pd.concat([one, other], ignore_index=True)), Pipeline(
        pd.concat([stages, moved], ignore_index=True)
    )


@pytest.mark.parametrize("is_uneven", [False, True])
def test_pipelines_that_wait_alike_are_one_finding(monkeypatch, is_uneven):
    results = once.results("pp", ["pipelines", "pipeline", "episodes", "replay", "collectives"])
    pipelines, stages = beside(results, bubble_ns=10_000_000)
    monkeypatch.setattr(rules, "_cause", lambda *_: None)
    if not is_uneven:
        monkeypatch.setattr(rules, "uneven_alike", lambda *_: [])
    found = rules.pipeline_bubble(pipelines, stages, results["episodes"], results["replay"], results["collectives"])
    assert len(found) == 1
    assert found[0].part_of == (pipeline_name(0) if is_uneven else None)
    assert found[0].title.startswith("The pipeline of ranks 2,3 waits 33 % of its time (20 % expected of 2 stages")
    assert "; that of ranks 0,1 waits 31 %." in found[0].title


def test_the_same_stage_of_two_pipelines_is_one_finding():
    results = once.results("pp", ["pipelines", "pipeline", "mfu", "episodes", "replay", "pipeline_messages"])
    pipelines, stages = beside(results)
    (found,) = pipeline_imbalance(
        pipelines, stages, results["mfu"], results["episodes"], results["replay"], results["pipeline_messages"]
    )
    assert found.title.startswith("Stage 1 (ranks 1 and 3) computes up to 107 ms a step, 24 % more than the mean rank")
    assert len(found.evidence) == 4


@pytest.mark.parametrize(
    ("one", "other", "microbatches", "together"),
    [
        ((30, 20, 20, 34), (31, 20, 20, 34), 8, True),  # half as heavy as the longest, or a little less
        ((34, 20, 20, 35), (35, 20, 20, 34), 8, True),
        ((20, 34, 20, 20), (20, 20, 34, 20), 8, False),
        ((20, 34, 20, 20), (32, 34, 20, 20), 8, True),
        ((30, 20, 20, 34), (31, 20, 20, 34), 4, False),
    ],
    ids=["one by chance", "either is longest", "other stages", "one of two", "another schedule"],
)
def test_replicas_are_told_together_where_the_same_stages_are_heavy(one, other, microbatches, together):
    rows, tables = [], []
    for number, each in enumerate((one, other)):
        longest = max(range(4), key=each.__getitem__)
        times = max(each) / (sum(each) / 4)
        rows.append({"pipeline": number, "bottleneck_stage": longest, "compute_max_over_mean": times, "schedule": "1F1B",
                     "stages": 4, "stages_per_rank": 1, "microbatches": microbatches if number else 8})  # fmt: skip
        tables.append(pd.DataFrame({"pipeline": number, "stage": range(4), "compute_ns": each}))
    pipelines = SimpleNamespace(rows=lambda: rows)
    found = uneven_stages.uneven_alike(pipelines, pd.concat(tables), 1.1)
    assert [len(each) for each in found] == ([2] if together else [1, 1])


@pytest.mark.parametrize(("longer", "steps", "is_said"), [(1.0, pd.NA, True), (3.0, pd.NA, False), (3.0, 2, True)])
def test_a_stage_of_which_more_was_recorded_is_not_uneven(longer, steps, is_said):
    results = once.results("pp", ["pipelines", "pipeline", "mfu", "episodes", "replay", "pipeline_messages"])
    table = results["pipeline"].table
    window = table["window_ns"].where(table["rank"] != 1, (longer * table["window_ns"]).astype("int64"))
    stages = Pipeline(table.assign(window_ns=window, steps=pd.array([steps] * len(table), dtype="Int64")))
    assert (
        bool(
            pipeline_imbalance(
                results["pipelines"],
                stages,
                results["mfu"],
                results["episodes"],
                results["replay"],
                results["pipeline_messages"],
            )
        )
        is is_said
    )


@pytest.mark.parametrize(
    ("of_stage", "is_said"), [((0, 30), True), ((30, 30), False), ((0, 3), False), ((30, 0), False)]
)
def test_a_stage_that_alone_recomputes_is_told_so(of_stage, is_said):
    """In TFLOP beside a model's 100 of each stage; without the other stage's figures nothing is said."""
    results = once.results("pp", ["pipelines", "pipeline", "mfu", "episodes", "replay", "pipeline_messages"])
    steps = results["mfu"].table
    recomputed = steps["rank"].map(dict(enumerate(of_stage))) * 10**12
    steps = steps.assign(model_flops=10**14, recompute_flops=recomputed, is_complete=True)
    both = (results["pipelines"], results["pipeline"])
    (found,) = pipeline_imbalance(
        *both, Mfu(steps), results["episodes"], results["replay"], results["pipeline_messages"]
    )
    assert ("It recomputes 30 TFLOP a step beside the model's 100 TFLOP, rank 0 none." in found.title) is is_said
    assert found.recommendation.startswith(
        "Recompute activations" if is_said else "Move layers from stage 1 to stage 0"
    )
    (other,) = pipeline_imbalance(
        *both, Mfu(steps[steps["rank"] == 1]), results["episodes"], results["replay"], results["pipeline_messages"]
    )
    assert "recomputes" not in other.title


@pytest.mark.parametrize(
    ("same_work_ratio", "share", "is_said"),
    [(1.3, 0.9, False), (1.3, 0.3, True), (None, 0.9, True)],
    ids=["a slower GPU", "a slower GPU is a small part", "more work"],
)
def test_a_stage_whose_gpu_is_slower_is_not_uneven(monkeypatch, same_work_ratio, share, is_said):
    """The stage computes 107 ms a step, the mean 86 ms."""
    results = once.results("pp", ["pipelines", "pipeline", "mfu", "episodes", "replay", "pipeline_messages"])
    late = {"ranks": "1", "numbers": "2,3", "steps": 2, "excess_ns": round(share * 21_000_000), "is_in_turn": False,
            "same_work_ratio": same_work_ratio}  # fmt: skip
    monkeypatch.setattr(uneven_stages, "said_with_gain", lambda _: [late])
    assert bool(pipeline_imbalance(**results)) is is_said


def test_a_bubble_that_the_schedule_explains_says_what_twice_the_microbatches_gain():
    """GPipe, 4 stages and 4 microbatches: 3/7 of an ideal 70 ms wait; with 8, 3/11 of 55 ms."""
    row = {"stages_per_rank": 1, "schedule": None, "expected_bubble_pct": 300 / 7, "bubble_pct": 45.0,
           "collective_wait_pct": None}  # fmt: skip
    ideal = Gain(before_ns=72_000_000, after_ns=70_000_000, error_ns=0, steps=2)
    assert rules._advice(row, ideal, is_uneven=False).endswith(
        "shrink it: twice the microbatches, or stages a rank, at best by 15.0 ms a step."
    )
    assert rules._severity(row, ideal) == "high"


@pytest.mark.parametrize("is_one_stream", [True, False])
def test_messages_on_one_stream_are_said_to_hold_each_other_up(is_one_stream):
    """What that costs is the difference of the two jobs, up to what the messages themselves take."""
    names = ["pipelines", "pipeline", "episodes", "replay", "collectives"]
    truth, results = analysed(interleaved(steps=3, is_one_stream=is_one_stream), *names)
    (found,) = rules.pipeline_bubble(**{name: results[name] for name in names})
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
