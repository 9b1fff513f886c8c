"""Advice has the words of whoever made the GPUs: no tool or setting of NVIDIA's for those of AMD and Intel."""

import ast
import re
from pathlib import Path

import pandas as pd
import pytest
from traceanalyzer.findings.vendor_terms import WORDS, maker_of, worded

import traceanalyzer as ta
import traceanalyzer.findings
from tests.simulator import capture, kineto, run
from tests.simulator.faults import Fault
from tests.simulator.makers import of_amd, of_intel
from tests.simulator.workloads import ddp
from traceanalyzer.analyses.host.api_calls import CudaApi
from traceanalyzer.analyses.trace import Ranks

_NVIDIAS = {
    # PyTorch for ROCm has torch.cuda, the CUDA activity and RCCL's variables by NCCL's names.
    "AMD": r"nvidia|NVIDIA|(?<!_)NCCL(?!_)|(?<!\.)CUDA(?!\])|cuda[A-Z]|NVLink|nsys|Nsight|NVTX|cuBLAS",
    "Intel": r"nvidia|NVIDIA|NCCL|CUDA|cuda|NVLink|nsys|Nsight|NVTX|cuBLAS|reduce-overhead",
}

_OWN = ("vendor_terms.py",)
"""Switches of engines have the same names on all GPUs (`cuda_graph_config`); other programs' profilers know no XPU."""

_OF_NSYS = "nsys profile --trace=cuda,nvtx"
"""Said of its reports alone."""


def _texts():
    """All that rules may say: texts of the package's code, without docstrings."""
    for path in sorted(Path(traceanalyzer.findings.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = [] if path.name in _OWN else [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        yield from (
            node.value
            for node in said
            if isinstance(node.value, str) and " " in node.value and id(node) not in documents
        )


@pytest.mark.parametrize("maker", ["AMD", "Intel"])
def test_no_advice_names_what_only_nvidia_has(maker):
    texts = [text for text in _texts() if text != _OF_NSYS]
    assert sum(bool(re.search(_NVIDIAS["Intel"], text)) for text in texts) > 20
    assert not [told for text in texts if re.search(_NVIDIAS[maker], told := worded(WORDS[maker], text))]


def results_of(models=(None,), formats=("kineto",), calls=()):
    ranks = pd.DataFrame({"rank": range(len(models)), "format": list(formats) * len(models), "device_name": models})
    api = pd.DataFrame({"rank": 0, "name": pd.Series(list(calls), dtype="str")})
    return {"ranks": Ranks(ranks), "cuda_api": CudaApi(api)}


@pytest.mark.parametrize(
    ("results", "maker"),
    [
        (results_of(["NVIDIA H200"] * 2, calls=["cudaLaunchKernel"]), None),
        (results_of(["AMD Instinct MI300X"] * 2), "AMD"),
        (results_of(["MI250X", "AMD Radeon"]), "AMD"),
        (results_of(["Intel(R) Data Center GPU Max 1550"]), "Intel"),
        (results_of(["NVIDIA H200", "AMD Instinct MI300X"]), None),
        (results_of([None], ["rocprofv3"]), "AMD"),
        (results_of(calls=["cudaLaunchKernel", "hipifyNothing"]), None),
        (results_of(calls=["hipLaunchKernel"]), "AMD"),
        (results_of(calls=["urEnqueueKernelLaunch"]), "Intel"),
        (results_of(calls=["zeEventHostSynchronize"]), "Intel"),
        (results_of(calls=["cudaLaunchKernel"]), None),
        (results_of(calls=["zero_grad", "urgent"]), None),
        ({}, None),
    ],
)
def test_the_maker_is_told_by_the_model_else_by_the_calls(results, maker):
    assert maker_of(results) == maker


@pytest.mark.parametrize(
    ("made_by", "call", "words"), [(of_amd, "hipFree", "amd-smi metric"), (of_intel, "urUSMFree", "xpu-smi stats")]
)
def test_a_hot_gpu_of_another_maker_is_looked_at_by_its_own_tool(made_by, call, words, tmp_path):
    hot = run(ddp(2, steps=2, layers=3, faults=(Fault("throttle", 0, (1,), None, 1.5), Fault("free", 200_000, (0, 1)))))
    kineto.write(capture(hot), tmp_path)
    made_by(2)(tmp_path)
    traces = ta.load(tmp_path)
    found = [item for lead in ta.find(traces) for item in (lead, *lead.also)]
    assert any(words in (item.recommendation or "") for item in found)
    assert not re.search("nvidia|CUDA_", " ".join(f"{item.recommendation} {item.caveat}" for item in found))
    assert {*ta.analyse(traces, "memory_calls")["memory_calls"].table["name"]} == {call}
