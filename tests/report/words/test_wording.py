import pytest

from traceanalyzer.analyses import ANALYSES, column_named
from traceanalyzer.report.words import label, unbroken, words


@pytest.mark.parametrize(
    ("column", "expected"),
    [("is_complete", "complete"), ("step_mean_ns", "step mean"), ("gpu_own_ns", "GPU own"), ("overlap_pct", "overlap"),
     ("kernels_under_5us_pct", "kernels under 5\u202fµs"), ("bandwidth_gb_per_s", "bandwidth"), ("cv", "std / mean"),
     ("tflops_per_s", "arithmetic"), ("rank", "rank")],
)  # fmt: skip
def test_a_column_in_words(column, expected):
    assert label(column, column_named(column)) == expected


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [("all_reduce", "collective", "all-reduce"), ("all_reduce", "operator", "all-reduce"), ("peer_copy", "collective", "peer-copy"),
     ("aten::copy_", "operator", "aten::copy_"), ("comm", "kind", "communication"), ("step_mean_ns", "figure", "step mean"),
     ("idle, sync_calls", "affects", "idle, sync calls"), ("inferred_arguments", "check", "inferred arguments"),
     ("cuda_driver 13.0, nccl 2.28.9", "versions", "CUDA driver 13.0, NCCL 2.28.9"), ("my_model/layer_1", "path", "my_model/layer_1"),
     ("Memset (Device)", "name", "memset"), ("BFloat16; Float", "dtype", "bf16; fp32"), ("Float8_e4m3fn", "dtype", "Float8_e4m3fn"),
     ('["c10::BFloat16", "Scalar"]', "dtypes", '["bf16", "Scalar"]')],
)  # fmt: skip
def test_a_value_in_words(text, column, expected):
    assert words(text, column_named(column)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("18.3 ms of 47 %", "18.3\u202fms of 47\u202f%"), ("93 GB/s, 4 µs", "93\u202fGB/s, 4\u202fµs"),
     ("rank 1 sits", "rank 1 sits"), ("step 2 ms_deep, 3 GPUs", "step 2 ms_deep, 3 GPUs")],
)  # fmt: skip
def test_a_figure_stays_with_its_unit(text, expected):
    assert unbroken(text) == expected


def test_no_column_of_a_result_has_an_underscore_or_no_words():
    labels = [label(name, column) for known in ANALYSES.values() for name, column in known.result.columns.items()]
    assert [words for words in labels if "_" in words or not words] == []
