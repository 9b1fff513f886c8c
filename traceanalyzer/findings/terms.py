"""What tools and settings are called for a run's GPU vendor and framework."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

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


@dataclass(frozen=True, slots=True)
class Terms:
    """Names of tools for one vendor and framework.

    Attributes:
        vendor: `NVIDIA`, `AMD` or `Intel`.
        framework: `torch`, `jax`, the name of an inference engine (`vLLM`, …), or `native` for a program of none.
    """

    vendor: str = "NVIDIA"
    framework: str = "torch"

    @classmethod
    def of(cls, results: Results) -> "Terms":
        """By the GPUs' models, the traces' formats, and the names of kernels, operators and iterations."""
        return cls(_vendor(results), _framework(results))

    @property
    def nccl(self) -> str:
        """The collective library."""
        return {"AMD": "RCCL", "Intel": "oneCCL"}.get(self.vendor, "NCCL")

    @property
    def graphs(self) -> str:
        """Recorded launches that are replayed as one."""
        return {"AMD": "HIP graphs", "Intel": "SYCL graphs"}.get(self.vendor, "CUDA graphs")

    @property
    def link(self) -> str:
        """The links between GPUs of a host."""
        return {"AMD": "xGMI", "Intel": "Xe Link"}.get(self.vendor, "NVLink")

    @property
    def health_command(self) -> str:
        """The command that shows a GPU's clocks, power and throttling."""
        return {
            "AMD": "amd-smi metric --clock --power --temperature",
            "Intel": "xpu-smi stats -d <gpu>",
        }.get(self.vendor, "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE")

    @property
    def processes_command(self) -> str:
        """The command that shows which processes have a GPU."""
        return {"AMD": "amd-smi process", "Intel": "xpu-smi ps"}.get(self.vendor, "nvidia-smi pmon")

    @property
    def topology_command(self) -> str:
        """The command that shows how GPUs are connected."""
        return {"AMD": "rocm-smi --showtopo", "Intel": "xpu-smi topology -m"}.get(self.vendor, "nvidia-smi topo -m")

    @property
    def allocator(self) -> str:
        """The setting that lets freed memory serve requests of other sizes."""
        name = {"AMD": "PYTORCH_HIP_ALLOC_CONF", "Intel": "PYTORCH_ALLOC_CONF"}
        return f"{name.get(self.vendor, 'PYTORCH_CUDA_ALLOC_CONF')}=expandable_segments:True"

    @property
    def is_serving(self) -> bool:
        """Whether an inference engine runs."""
        return self.framework in _ENGINES

    def choose(self, texts: Mapping[str, str]) -> str:
        """The text for this framework; `engine` serves all inference engines, `torch` is the default."""
        own = texts.get(self.framework) or (texts.get("engine") if self.is_serving else None)
        return own or texts["torch"]


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
