import pytest

from traceanalyzer.analyses import ANALYSES, column_named
from traceanalyzer.report.words import label, words


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [("all_reduce", "collective", "all-reduce"), ("all_reduce", "operator", "all-reduce"), ("peer_copy", "collective", "peer-copy"),
     ("aten::copy_", "operator", "aten::copy_"), ("comm", "kind", "communication"), ("step_mean_ns", "part", "step mean"),
     ("idle, sync_calls", "affects", "idle, sync calls"), ("partial_steps", "check", "partial steps"),
     ("cuda_driver 13.0, nccl 2.28.9", "versions", "CUDA driver 13.0, NCCL 2.28.9"), ("my_model/layer_1", "path", "my_model/layer_1"),
     ("Memset (Device)", "name", "memset"), ("BFloat16; Float", "dtype", "bf16; fp32"), ("Float8_e4m3fn", "dtype", "Float8_e4m3fn"),
     ('["c10::BFloat16", "Scalar"]', "dtypes", '["bf16", "Scalar"]')],
)  # fmt: skip
def test_a_value_in_words(text, column, expected):
    assert words(text, column_named(column)) == expected


def test_no_column_of_a_result_has_an_underscore_or_no_words():
    labels = [label(name, column) for known in ANALYSES.values() for name, column in known.result.columns.items()]
    assert [words for words in labels if "_" in words or not words] == []
