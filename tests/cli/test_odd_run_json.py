"""Odd values in run.json, up to the page."""

import json

import pytest

from tests.builders import document, kernel, write
from traceanalyzer.cli import run


@pytest.mark.parametrize("row", [{"rank": 0, "peak_allocated_bytes": []}, {"peak_allocated_bytes": 7}])
def test_odd_memory_of_a_run_costs_no_part_of_the_page(tmp_path, row):
    for rank in (0, 1):
        write(tmp_path / "job" / f"rank{rank}.json", document([kernel(10, 5)], rank=rank, world_size=2))
    memory = [row, {"rank": 1, "peak_allocated_bytes": 5}]
    (tmp_path / "job" / "run.json").write_text(json.dumps({"strategy": "ddp", "memory": memory}))
    assert run([str(tmp_path / "job"), "-o", str(tmp_path / "out"), "--quiet", "--format", "html"]) == 0
