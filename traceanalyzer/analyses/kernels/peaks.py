"""What each GPU can do at most: dense TFLOP/s by element type, and memory bandwidth.

Vendors' figures at boost clock; those that they give with structured sparsity are halved. What a document does not say
is absent (FP64 of most PCIe cards), and so is a GPU without a document, as A800 and H800, and a slice of one (MIG).
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class Peak(Struct, frozen=True):
    """Peak rates of one GPU.

    Attributes:
        gpu: name of the model.
        tflops: dense, 10¹² operations a second, by `fp64` (on tensor or matrix cores, where they have it), `fp32` (no
            tensor cores), `tf32`, `bf16`, `fp16`, `fp8`, `int8`.
        gbytes_per_s: memory bandwidth, 10⁹ bytes a second.
        source: title of the document that has them.
    """

    gpu: str
    tflops: Mapping[str, float]
    gbytes_per_s: float
    source: str


def _tensor(half: float, *, fp32: float, fp64: float | None = None, tf32: float | None = None, fp8: float | None = None,
            int8: float | None = None, has_bf16: bool = True) -> Mapping[str, float]:  # fmt: skip
    rates = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "fp16": half, "fp8": fp8, "int8": int8}
    if has_bf16:
        rates["bf16"] = half
    return MappingProxyType({name: rate for name, rate in rates.items() if rate is not None})


_H100_SXM = _tensor(989.4, fp32=66.9, fp64=66.9, tf32=494.7, fp8=1978.9, int8=1978.9)
_H100_NVL = _tensor(835.5, fp32=60.0, fp64=60.0, tf32=417.5, fp8=1670.5, int8=1670.5)
_A100 = _tensor(312.0, fp32=19.5, fp64=19.5, tf32=156.0, int8=624.0)
_MI300 = _tensor(1307.4, fp32=163.4, fp64=163.4, tf32=653.7, fp8=2614.9, int8=2614.9)

_A100_SHEET, _V100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet", "NVIDIA V100 Tensor Core GPU data sheet"
_H100_SHEET, _H100_PAPER = "NVIDIA H100 Tensor Core GPU data sheet", "NVIDIA H100 Tensor Core GPU architecture"
_MI350_SHEET, _MI355_SHEET = "AMD Instinct MI350X data sheet", "AMD Instinct MI355X data sheet"
_H200_SHEET, _GH200_SHEET = "NVIDIA H200 Tensor Core GPU data sheet", "NVIDIA GH200 Grace Hopper Superchip data sheet"

_PEAKS = (
    (r"MIG", None),
    (
        r"B200",
        Peak(
            "B200",
            _tensor(2250.0, fp32=75.0, fp64=37.0, tf32=1100.0, fp8=4500.0, int8=4500.0),
            7700.0,
            "NVIDIA Blackwell data sheet, HGX B200",
        ),
    ),
    (r"GH200 480GB", Peak("GH200, HBM3", _H100_SXM, 4000.0, _GH200_SHEET)),
    (r"GH200 144G", Peak("GH200, HBM3e", _H100_SXM, 4900.0, _GH200_SHEET)),
    (r"H200 NVL", Peak("H200 NVL", _H100_NVL, 4800.0, _H200_SHEET)),
    (r"H200", Peak("H200 SXM", _H100_SXM, 4800.0, f"{_H200_SHEET}; {_H100_PAPER}")),
    (r"H100 NVL", Peak("H100 NVL", _H100_NVL, 3900.0, _H100_SHEET)),
    (
        r"H100 PCIe",
        Peak(
            "H100 PCIe", _tensor(756.5, fp32=51.0, fp64=51.0, tf32=378.0, fp8=1513.0, int8=1513.0), 2000.0, _H100_SHEET
        ),
    ),
    (r"H100 80GB HBM3", Peak("H100 SXM", _H100_SXM, 3350.0, f"{_H100_SHEET}; {_H100_PAPER}")),
    (r"A100.*SXM.*80GB", Peak("A100 SXM 80 GB", _A100, 2039.0, _A100_SHEET)),
    (r"A100 80GB PCIe", Peak("A100 PCIe 80 GB", _A100, 1935.0, _A100_SHEET)),
    (r"A100.*40GB", Peak("A100 40 GB", _A100, 1555.0, _A100_SHEET)),
    (
        r"L40S",
        Peak("L40S", _tensor(362.05, fp32=91.6, tf32=183.0, fp8=733.0, int8=733.0), 864.0, "NVIDIA L40S data sheet"),
    ),
    (
        r"L4$",
        Peak(
            "L4",
            _tensor(121.0, fp32=30.3, tf32=60.0, fp8=242.5, int8=242.5),
            300.0,
            "NVIDIA L4 Tensor Core GPU data sheet",
        ),
    ),
    (
        r"A10$",
        Peak("A10", _tensor(125.0, fp32=31.2, tf32=62.5, int8=250.0), 600.0, "NVIDIA A10 Tensor Core GPU data sheet"),
    ),
    (r"V100-SXM2", Peak("V100 SXM", _tensor(125.0, fp32=15.7, fp64=7.8, has_bf16=False), 900.0, _V100_SHEET)),
    (r"V100-PCIE", Peak("V100 PCIe", _tensor(112.0, fp32=14.0, fp64=7.0, has_bf16=False), 900.0, _V100_SHEET)),
    (r"T4$", Peak("T4", _tensor(65.0, fp32=8.1, int8=130.0, has_bf16=False), 320.0, "NVIDIA T4 product brief")),
    (r"MI355X", Peak("MI355X", _tensor(2516.6, fp32=157.3, fp64=78.6, fp8=5033.2, int8=5033.2), 8000.0, _MI355_SHEET)),
    (r"MI350X", Peak("MI350X", _tensor(2306.9, fp32=144.2, fp64=72.1, fp8=4613.7, int8=4613.7), 8000.0, _MI350_SHEET)),
    (r"MI325X", Peak("MI325X", _MI300, 6000.0, "AMD Instinct MI325X data sheet")),
    (r"MI300X", Peak("MI300X", _MI300, 5300.0, "AMD Instinct MI300X data sheet")),
    (
        r"MI300A",
        Peak(
            "MI300A",
            _tensor(980.6, fp32=122.6, fp64=122.6, tf32=490.3, fp8=1961.2, int8=1961.2),
            5300.0,
            "AMD Instinct MI300A data sheet",
        ),
    ),
    (r"MI250X\s*/\s*MI250", None),  # the driver's name for either: their peaks differ
    (
        r"MI250X",
        Peak(
            "MI250X, one die",
            _tensor(191.5, fp32=23.95, fp64=47.85, int8=191.5),
            1638.4,
            "AMD Instinct MI250X data sheet, half: a device is one of its two dies",
        ),
    ),
    (
        r"MI250",
        Peak(
            "MI250, one die",
            _tensor(181.05, fp32=22.65, fp64=45.25, int8=181.05),
            1638.4,
            "AMD Instinct MI250 data sheet, half: a device is one of its two dies",
        ),
    ),
    (
        r"MI210",
        Peak("MI210", _tensor(181.0, fp32=22.6, fp64=45.3, int8=181.0), 1638.4, "AMD Instinct MI210 data sheet"),
    ),
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
