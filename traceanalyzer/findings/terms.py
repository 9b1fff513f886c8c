"""What tools and settings are called for a run's GPU vendor and framework."""

import re
from collections.abc import Mapping

import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from traceanalyzer.analyses import Results
from traceanalyzer.readers import FORMATS, Format

_VENDORS = {
    "AMD": (r"^AMD\b|\bMI\d{2,3}|\bRadeon\b", r"^hip[A-Z]"),
    "Intel": (r"^Intel\b", r"^(?:ur|ze)[A-Z]"),
}
"""How models, and the calls by which CPUs drive the GPUs, begin."""

_ENGINES = {
    "vLLM": r"^(?:execute_(?:\d+_)?context_|execute_new_|execute_model|gpu_model_runner)",
    "SGLang": r"^step\[",
    "TensorRT-LLM": r"^\[Executor\] _forward_step",
}
"""How an inference engine names its iterations."""

_FRAMEWORK = re.compile(
    r"\b(?:at|c10d?|torch|pytorch\w*|caffe2|vllm|sglang|tensorrt_llm|transformer_engine|xla|stream_executor|tensorflow)::"
    r"|^triton_(?:poi|red|per|tem|for|spl|mix)_|\bpytorch_flash|flash_(?:fwd|bwd)|multi_tensor_apply|^nvjet_|^loop_\w*fusion"
)
"""Kernels of machine-learning frameworks."""


class Terms(Struct, frozen=True):
    """Names of tools for one vendor and framework; those of NVIDIA are the default.

    Attributes:
        framework: `torch`, `jax`, the name of an inference engine (`vLLM`, …), or `native` for a program of none.
        vendor: `NVIDIA`, `AMD` or `Intel`.
        nccl: the collective library.
        graphs: recorded launches that are replayed as one.
        link: the links between GPUs of a host.
        health_command: shows a GPU's clocks, power and throttling.
        processes_command: shows which processes have a GPU.
        topology_command: shows how GPUs are connected.
        allocator: the setting that lets freed memory serve requests of other sizes.
    """

    framework: str = "torch"
    vendor: str = "NVIDIA"
    nccl: str = "NCCL"
    graphs: str = "CUDA graphs"
    link: str = "NVLink"
    health_command: str = "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE"
    processes_command: str = "nvidia-smi pmon"
    topology_command: str = "nvidia-smi topo -m"
    allocator: str = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

    @classmethod
    def of(cls, results: Results) -> "Terms":
        """By the GPUs' models, the traces' formats, and the names of kernels, operators and iterations."""
        return replace(_TERMS[_vendor(results)], framework=_framework(results))

    @property
    def is_serving(self) -> bool:
        """Whether an inference engine runs."""
        return self.framework in _ENGINES

    def choose(self, texts: Mapping[str, str]) -> str:
        """The text for this framework; `engine` serves all inference engines, `torch` is the default."""
        own = texts.get(self.framework) or (texts.get("engine") if self.is_serving else None)
        return own or texts["torch"]


_TERMS: Mapping[str, Terms] = {
    "NVIDIA": Terms(),
    "AMD": Terms(
        vendor="AMD",
        nccl="RCCL",
        graphs="HIP graphs",
        link="xGMI",
        health_command="amd-smi metric --clock --power --temperature",
        processes_command="amd-smi process",
        topology_command="rocm-smi --showtopo",
        allocator="PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
    ),
    "Intel": Terms(
        vendor="Intel",
        nccl="oneCCL",
        graphs="SYCL graphs",
        link="Xe Link",
        health_command="xpu-smi stats -d <gpu>",
        processes_command="xpu-smi ps",
        topology_command="xpu-smi topology -m",
        allocator="PYTORCH_ALLOC_CONF=expandable_segments:True",
    ),
}


def _vendor(results: Results) -> str:
    models = _texts(results, "ranks", "device_name")
    for vendor, (model, call) in _VENDORS.items():
        if len(models) and models.str.contains(model).all():
            return vendor
        if _texts(results, "cuda_api", "name").str.contains(call).any():
            return vendor
    return next((one.vendor for one in _formats(results) if one.vendor != "NVIDIA"), "NVIDIA")


def _framework(results: Results) -> str:
    names = _texts(results, "iterations", "name")
    for engine, pattern in _ENGINES.items():
        if names.str.contains(pattern).any():
            return engine
    frameworks = {one.framework for one in _formats(results)}
    if "jax" in frameworks or _texts(results, "ranks", "versions").str.contains("XLA").any():
        return "jax"
    kernels, operators = _texts(results, "kernels", "name"), _texts(results, "operators", "operator")
    is_framework = kernels.str.contains(_FRAMEWORK).any() or operators.str.contains(r"^\w[^(]*::").any()
    return "native" if frameworks == {""} and len(kernels) and not is_framework else "torch"


def _formats(results: Results) -> list[Format]:
    return [FORMATS[name] for name in _texts(results, "ranks", "format") if name in FORMATS]


def _texts(results: Results, name: str, column: str) -> pd.Series:
    """The distinct values; none where the Result or the column is missing."""
    result = results.get(name)
    table = pd.DataFrame() if result is None else result.table
    return pd.Series(table[column].dropna().astype("object").unique() if column in table else [], dtype="str")
