"""Advice has the words of whoever made the GPUs: no tool or setting of NVIDIA's for those of AMD and Intel."""

import ast
import re
from pathlib import Path

import pandas as pd
import pytest

import traceanalyzer.findings
from traceanalyzer.analyses.host.api_calls import CudaApi
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.vendor_terms import WORDS, worded

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
