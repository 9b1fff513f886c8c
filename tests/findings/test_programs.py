"""Programs of no framework that learns are not told PyTorch's tools."""

import ast
import re
from pathlib import Path

import pandas as pd
import pytest

import traceanalyzer as ta
import traceanalyzer.findings
from tests import once
from tests.simulator import Group, capture, nsys, run
from tests.simulator.program import COMPUTE_STREAM
from tests.simulator.workloads import job_of
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings import vendor_terms
from traceanalyzer.findings.vendor_terms import PLAIN, is_of_plain_program, is_plain

JACOBI = "void jacobi_kernel<32, 32>(float*, float const*, float*, int, int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
_TORCHS = re.compile(r"torch|\.item\(|DataLoader|PYTORCH|with_stack|autocast|no_sync|bucket|gradient|Python")


def _said():
    """All texts of the package's rules, parts of one sentence as they are joined where they stand."""
    for path in Path(traceanalyzer.findings.__file__).parent.rglob("*.py"):
        if path.name != "programs.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def test_what_is_said_otherwise_is_said_somewhere():
    said = "\n".join(_said())
    assert not [words for words in PLAIN if words.rstrip(".") not in said]
    assert not [words for words in PLAIN.values() if _TORCHS.search(words)]
    assert not _TORCHS.search(str(vendor_terms.ANY))


def table(result, **columns):
    return result(pd.DataFrame({"rank": 0} | columns))


@pytest.mark.parametrize(
    ("made", "is_so"),
    [
        ({}, True),
        ({"format": ["rocprofv3"]}, True),
        ({"format": ["kineto"]}, False),
        ({"format": ["nsys", "kineto"], "versions": [None, None]}, False),
        ({"versions": ["nsys 2025.3.2.0, compiler XLA"]}, False),
        ({"name": [JACOBI, ADD]}, False),
        ({"name": [JACOBI, "triton_poi_fused_add_0"]}, False),
        ({"operator": ["(outside any operator)", "aten::mm"]}, False),
        ({"name": []}, False),
    ],
)
def test_programs_are_told_by_profiler_kernels_and_operators(made, is_so):
    of = {"format": ["nsys"], "versions": [None], "name": [JACOBI], "operator": ["(outside any operator)"]} | made
    ranks = table(Ranks, format=of["format"], versions=of["versions"])
    kernels, operators = table(Kernels, name=of["name"], calls=1), table(Operators, operator=of["operator"])
    assert is_plain(ranks, kernels, operators) is is_so
    assert (vendor_terms.tools_of(ranks, kernels, operators=operators) is vendor_terms.ANY) is is_so
    assert is_of_plain_program({"ranks": ranks, "kernels": kernels, "operators": operators}) is is_so


def test_nobody_knows_without_kernels():
    assert not is_plain(table(Ranks, format=["nsys"]), None)
    assert not is_of_plain_program({})


@pytest.mark.parametrize("name", ["nsys_ddp", "nsys_fsdp_full"])
def test_real_jobs_of_pytorch_are_none(name):
    assert not is_of_plain_program(once.results(name, ("ranks", "kernels")))


def _waits(program):
    for _ in range(20):
        program.kernel(JACOBI, 6_000)
        program.host(14_000, "")
        program.copy("DtoH", 4, 2_000, stream=COMPUTE_STREAM)
        program.sync("cudaStreamSynchronize")


def _allocates(program):
    for _ in range(5):
        program.host(300_000, "cudaMalloc", "call")
        program.kernel(JACOBI, 500_000)
        program.sync("cudaStreamSynchronize")
        program.host(200_000, "cudaFree", "call")


def _multiplies(program):
    for _ in range(10):
        program.kernel("ampere_sgemm_128x64_nn", 900_000)


def _reduces(program):
    for _ in range(20):
        program.kernel(JACOBI, 60_000)
        program.collective("all_reduce", Group("0", (0, 1)), 2, 15_000, stream=COMPUTE_STREAM)


@pytest.mark.parametrize(
    ("what", "rule"),
    [(_waits, "host_bound"), (_allocates, "allocator_retries"), (_multiplies, "tensor_cores_unused"),
     (_reduces, "little_overlap")],
)  # fmt: skip
def test_a_program_of_nobody_is_told_nothing_of_pytorch(what, rule, tmp_path):
    job = job_of(2, 4, lambda program, _: what(program), (Group("0", (0, 1)),))
    nsys.write_reports(capture(run(job)), tmp_path)
    found = [item for lead in ta.find(ta.load(tmp_path)) for item in (lead, *lead.also)]
    assert rule in {item.rule for item in found}
    assert not [said for item in found if _TORCHS.search(said := f"{item.recommendation} {item.caveat}")]
