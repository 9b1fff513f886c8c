"""Kernels that compute and communicate at once: compute in every sum, and said beside it."""

import json

import pytest
from click.testing import CliRunner

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from traceanalyzer.cli import cli

MEGA = "void deep_gemm::sm100_fp8_mega_moe_impl<128u>(float*)"
LAUNCHES = [host(0, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1),
            host(1, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=2)]  # fmt: skip
EVENTS = [*LAUNCHES, kernel(10, 30, name=MEGA, correlation=1), kernel(40, 60, correlation=2)]


def folder(tmp_path):
    write(tmp_path / "rank0.json", document(EVENTS, rank=0, world_size=1))
    return tmp_path


def test_their_time_is_part_of_compute(tmp_path):
    traces = ta.load(folder(tmp_path))
    (row,) = ta.headline(traces).rows()
    assert (row["compute_ns"], row["fused_ns"], row["fused_pct"]) == (90_000, 30_000, pytest.approx(100 / 3))


def test_they_are_said_on_the_terminal_and_in_the_verdict(tmp_path):
    said = CliRunner().invoke(cli, ["--trace-dir", str(folder(tmp_path)), "--output", str(tmp_path / "out")]).output
    plain = " ".join(said.split())
    assert "Data quality: fused kernels." in plain
    assert "fused kernels" in (tmp_path / "out" / "summary.html").read_text()
    assert "fused_ns" in (tmp_path / "out" / "summary.csv").read_text()
    held = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["check"] for row in held["results"]["integrity"]] == ["fused_kernels"]


def test_without_them_the_terminal_has_no_column(tmp_path):
    write(tmp_path / "rank0.json", document([LAUNCHES[0], kernel(10, 30, correlation=1)], rank=0, world_size=1))
    arguments = ["--trace-dir", str(tmp_path), "--output", str(tmp_path / "out"), "--format", "json"]
    assert "fused" not in CliRunner().invoke(cli, arguments).output
