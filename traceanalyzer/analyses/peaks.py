"""What each GPU can do at most: dense TFLOP/s by element type, and memory bandwidth.

Vendors' data sheets, without structured sparsity (their figures "with sparsity" are twice these), at boost clock:

* NVIDIA V100, A100, A10, T4, L4, L40S, H100 (SXM, PCIe, NVL), H200, GH200 and B200 data sheets; H100 also the
  Hopper architecture white paper, B200 the HGX B200 figures (1,000 W); A800 and H800 compute as A100 and H100.
* AMD Instinct MI250X (both dies: a device is one, so half), MI300X and MI325X data sheets.

A GPU that is not listed, and a slice of one (MIG), has no known peak.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak rates of one GPU.

    Attributes:
        gpu: name of the model.
        tflops: dense, 10¹² operations a second, by `fp64`, `fp32` (no tensor cores), `tf32`, `bf16`, `fp16`, `fp8`,
            `int8`.
        gbytes_per_s: memory bandwidth, 10⁹ bytes a second.
    """

    gpu: str
    tflops: Mapping[str, float]
    gbytes_per_s: float


def _tensor(half: float, *, fp32: float, fp64: float, tf32: float | None = None, fp8: float | None = None,
            int8: float | None = None, has_bf16: bool = True) -> Mapping[str, float]:  # fmt: skip
    rates = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "fp16": half, "fp8": fp8, "int8": int8}
    if has_bf16:
        rates["bf16"] = half
    return MappingProxyType({name: rate for name, rate in rates.items() if rate is not None})


_H100_SXM = _tensor(989.4, fp32=66.9, fp64=33.5, tf32=494.7, fp8=1978.9, int8=1978.9)
_A100 = _tensor(312.0, fp32=19.5, fp64=9.7, tf32=156.0, int8=624.0)

_PEAKS = (
    (r"MIG", None),
    (r"B200", Peak("B200", _tensor(2250.0, fp32=80.0, fp64=40.0, tf32=1100.0, fp8=4500.0, int8=4500.0), 8000.0)),
    (r"GH200", Peak("GH200", _H100_SXM, 4000.0)),
    (r"H200 NVL", None),
    (r"H200", Peak("H200 SXM", _H100_SXM, 4800.0)),
    (
        r"H[18]00 NVL",
        Peak("H100 NVL", _tensor(835.0, fp32=60.0, fp64=30.0, tf32=417.5, fp8=1670.5, int8=1670.5), 3900.0),
    ),
    (
        r"H[18]00 PCIe",
        Peak("H100 PCIe", _tensor(756.0, fp32=51.0, fp64=26.0, tf32=378.0, fp8=1513.0, int8=1513.0), 2000.0),
    ),
    (r"H[18]00", Peak("H100 SXM", _H100_SXM, 3350.0)),
    (r"A[18]00.*SXM.*80GB", Peak("A100 SXM 80 GB", _A100, 2039.0)),
    (r"A[18]00 80GB PCIe", Peak("A100 PCIe 80 GB", _A100, 1935.0)),
    (r"A[18]00.*40GB", Peak("A100 40 GB", _A100, 1555.0)),
    (r"L40S", Peak("L40S", _tensor(362.0, fp32=91.6, fp64=1.4, tf32=183.0, fp8=733.0, int8=733.0), 864.0)),
    (r"L4$", Peak("L4", _tensor(121.0, fp32=30.3, fp64=0.5, tf32=60.0, fp8=242.5, int8=242.5), 300.0)),
    (r"A10$", Peak("A10", _tensor(125.0, fp32=31.2, fp64=0.5, tf32=62.5, int8=250.0), 600.0)),
    (r"V100.*SXM\d", Peak("V100 SXM", _tensor(125.0, fp32=15.7, fp64=7.8, has_bf16=False), 900.0)),
    (r"V100.*PCIE?", Peak("V100 PCIe", _tensor(112.0, fp32=14.0, fp64=7.0, has_bf16=False), 900.0)),
    (r"T4$", Peak("T4", _tensor(65.0, fp32=8.1, fp64=0.25, int8=130.0, has_bf16=False), 320.0)),
    (r"MI325X", Peak("MI325X", _tensor(1307.4, fp32=163.4, fp64=81.7, tf32=653.7, fp8=2614.9, int8=2614.9), 6000.0)),
    (r"MI300X", Peak("MI300X", _tensor(1307.4, fp32=163.4, fp64=81.7, tf32=653.7, fp8=2614.9, int8=2614.9), 5300.0)),
    (r"MI250X", Peak("MI250X, one die", _tensor(191.5, fp32=23.9, fp64=23.9, int8=191.5), 1638.4)),
)
"""First match wins, whole words only."""


def peak_of(device_name: str | None) -> Peak | None:
    """Peak of a GPU by its name as the driver gives it (`NVIDIA H200`); `None` when it is not listed."""
    if not device_name:
        return None
    for pattern, peak in _PEAKS:
        if re.search(rf"(?<![A-Za-z0-9]){pattern}(?![0-9])", device_name.strip()):
            return peak
    return None


_ELEMENTS = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "double": "fp64", "float64": "fp64", "char": "int8",
    "int8": "int8", "signed char": "int8",
}  # fmt: skip


def element_type(dtype: str | None, *, tensor_cores: bool | None) -> str | None:
    """Which peak applies to an element type as a trace has it (`c10::BFloat16`).

    32-bit products run as TF32 on tensor cores or as FP32 without: `None` when the kernel's name does not say which.
    """
    name = (dtype or "").removeprefix("c10::").removeprefix("torch.").lower()
    if name in ("float", "float32"):
        return None if tensor_cores is None else "tf32" if tensor_cores else "fp32"
    return "fp8" if name.startswith("float8") else _ELEMENTS.get(name)
