"""Pairs of runs of which the difference is known: the first lines say it."""

import dataclasses

import msgspec
import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from tests.diff.test_different import INFO, TOPOLOGY
from traceanalyzer.diff import compare
from traceanalyzer.errors import UsageError
from traceanalyzer.report.comparison import sentences

SURROUNDINGS = "A time difference may come from the environment, not the code."
PIPELINED = (
    "Different: strategy ddp | pp_1f1b; parallel sizes data parallel 2 | pipeline 2. "
    "A time difference may come from any of them."
)
LONGER = "other takes 22 ns/step, base 20 ns (+2 ns, +10%); "


def run(label, compute=12, info=INFO, **tables):
    made = capture(steady(compute, 5, 5), label, info=info)
    return dataclasses.replace(made, tables={**made.tables, **tables})


def lines(base=None, other=None, **more):
    info = msgspec.structs.replace(INFO, **more)
    made = compare([side("base", base or run("base", 10)), side("other", other or run("other", info=info))])
    return [made.different, *(text.replace("\u202f", " ") for text in sentences.verdict_sentences(made))]


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"versions": INFO.versions | {"driver": "590.2"}}, f"Different: driver 580.1 | 590.2. {SURROUNDINGS}"),
        ({"topology": TOPOLOGY.format("SYS")}, f"Different: links NV18 | SYS. {SURROUNDINGS}"),
        ({"compile": True}, "Different: compiled False | True. A time difference may come from it."),
        ({"param_dtype": "bf16"}, "No known difference. A time difference comes from the code, or is noise."),
        ({"strategy": "pp_1f1b", "parallel": {"dp": 1, "tp": 1, "pp": 2, "split": [6, 6]}}, PIPELINED),
    ],
    ids=["driver", "links", "compiled", "told by one only", "a pipeline"],
)  # fmt: skip
def test_first_lines(more, first):
    found = lines(**more)
    assert found[0] == first
    assert any(text.startswith(LONGER) for text in found), "and then by how much"
    assert not any("synchronised" in text for text in found), "a pipeline has no gradients to exchange"


def with_format(made, name):
    ranks = made.tables["ranks"].assign(format=name)
    return dataclasses.replace(made, tables={**made.tables, "ranks": ranks})


def test_another_profiler_makes_no_run_longer():
    found = lines(with_format(run("base", 10), "kineto"), with_format(run("other"), "nsys"))
    assert found[0].startswith(
        "Different: profiler PyTorch's profiler | Nsight Systems. Profilers add different CPU overhead"
    )
    assert not any("noise" in text for text in found)
    assert any(text.startswith("Compute: 10 ns → 12 ns/step (+20") for text in found)


@pytest.mark.parametrize(
    ("more", "why"),
    [({"dtype": "fp32"}, "dtype bf16 | fp32"), ({"model": {"layers": 9}}, "model layers 2 | layers 9")],
    ids=["precision", "model"],
)  # fmt: skip
def test_other_work_is_refused_with_the_same_first_line(more, why):
    with pytest.raises(UsageError) as refused:
        lines(run("base", 10), run("other", info=msgspec.structs.replace(INFO, **more)))
    assert str(refused.value).startswith(f"Different: {why}. They did not do the same work")


def products(time_ns, beside=0, calls=48):
    rows = [
        {"rank": rank, "phase": "forward", "product": "[8192, 1024] × [1024, 4096]", "dtype": "c10::BFloat16",
         "calls": calls, "gpu_ns": calls * time_ns, "calls_beside_comm": beside,
         "gpu_beside_comm_ns": beside * time_ns}
        for rank in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("base", "other", "said"),
    [
        (products(84), products(112), "84 ns → 112 ns per call, 24 calls, none while communication runs."),
        (products(84), products(84, calls=96), "84 ns → 84 ns per call, 24 → 48 calls, none while communication runs."),
    ],
    ids=["slower", "more of them"],
)
def test_one_matrix_product(base, other, said):
    found = lines(run("base", 10, matrix_products=base), run("other", matrix_products=other))
    assert f"Kernels: [8192, 1024] × [1024, 4096] bf16, forward: {said}" in found


def pipelines(schedule, microbatches):
    return pd.DataFrame([{"pipeline": 0, "schedule": schedule, "microbatches": microbatches}])


def streams(compute_ns):
    rows = [{"rank": rank, "stream": 7, "upload_ns": 20, "download_ns": 0, "compute_ns": compute_ns} for rank in (0, 1)]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (11, "(+1 ns, +5%); cannot tell them apart: between −1.05 ns and +3.05 ns, by how much steps vary. "),
        (20, "(+10 ns, +50%); between +7.50 ns and +12.5 ns, by how much steps vary. "),
    ],
)
def test_a_difference_is_held_against_what_steps_differ_by(compute, expected):
    said = " ".join(lines(run("base", 10), run("other", compute)))
    assert f"{expected}With one capture of each, run-to-run noise is unknown." in said
