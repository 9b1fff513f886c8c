"""Operators of Apple's GPU say why no GPU work was recorded."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, write


@pytest.mark.parametrize(("name", "is_of_apple"), [("aten::_mps_convolution", True), ("aten::mm", False)])
def test_work_of_apples_gpu_is_not_recorded(tmp_path, name, is_of_apple):
    write(tmp_path / "rank0.json", document([host(0, 5, name=name), host(6, 5, name="aten::mm")]))
    (said,) = ta.integrity(ta.load(tmp_path)).table["sentence"]
    assert ("Apple's GPU (MPS)" in said) is is_of_apple
