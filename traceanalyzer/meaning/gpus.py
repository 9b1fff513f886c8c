"""What each GPU can do: its architecture, dense TFLOP/s by element type, memory bandwidth and links.

Vendors' figures at boost clock; those that they give with structured sparsity are halved, those for FP16 are the ones
that accumulate in FP32. What a document does not say is absent, and so are figures of a slice of a GPU (MIG).
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from msgspec import Struct

from traceanalyzer.kinds import element

_ARCHITECTURES = r"""
Kepler     |                    | K\d\d\w?                                       | 3[0-7]
Maxwell    |                    | GTX TITAN X, GTX 9\d\d, M\d\d?                  | 5[0-3]
Pascal     |                    | GTX 10\d\d, TITAN Xp?, Quadro G?P\d+, P\d+        | 6[0-2]
Volta      | fp16               | V100S?, TITAN V, Quadro GV100                   | 7[02]
Turing GTX |                    | GTX 16\d\d                                      |
Turing     | fp16               | RTX 20\d\d, Quadro RTX, TITAN RTX, T4           | 75
Ampere     | bf16 fp16 tf32     | A\d{1,3}G?, RTX 30\d\d, RTX A\d+                | 8[067]
Ada        | bf16 fp16 fp8 tf32 | L\d0?\w?, RTX 40\d\d, Ada                       | 89
Hopper     | bf16 fp16 fp8 tf32 | G?H\d+                                          | 90
Blackwell  | bf16 fp16 fp8 tf32 | G?B\d00, RTX 50\d\d, Blackwell                  | 1[0-2]\d
CDNA       | bf16 fp16          | MI100                                           | 908
CDNA 2     | bf16 fp16          | MI2\d0X?                                        | 90a
CDNA 3     | bf16 fp16 fp8 tf32 | MI3[02][05][AX]                                 | 94\d
CDNA 4     | bf16 fp16 fp8      | MI35[05]X                                       | 950
"""
"""Oldest first: floating-point types of its tensor or matrix cores, names of its GPUs, and targets of its compilers.

NVIDIA's architecture white papers and "CUDA GPU Compute Capability", AMD's CDNA white papers and LLVM's list of gfx.
"""

# Of a GPU's name | model | architecture | dense TFLOP/s: fp64 (on tensor or matrix cores, where they have it), fp32
# (without), tf32, bf16 and fp16, fp8, int8 | memory GB/s | PCI Express x16 GB/s each way | NVLinks x GB/s each way
# (PCIe cards reach others by a bridge or not at all, which the name does not say) | document. The first match wins.
#
# Pages of others give GB200 the rates of HGX B200, and B300 the INT8 rate of B200. NVIDIA's Blackwell data sheet has
# them apart, with sparsity: FP8 10 and 9 PFLOPS, FP16 5 and 4.5, TF32 2.5 and 2.2, memory 8 and 7.7 TB/s. Blackwell
# Ultra has B200's FP8, FP16 and TF32, but a thirtieth of its INT8 and FP64.
_GPUS = r"""
MIG                   |                     |           |       |       |       |        |        |        |        |      |       |
GB300                 | GB300               | Blackwell |  1.39 |    80 |  1250 |   2500 |   5000 |    165 |   8000 |      | 18x50 | NVIDIA GB300 NVL72 data sheet, one GPU of 72
GB200                 | GB200               | Blackwell |    40 |    80 |  1250 |   2500 |   5000 |   5000 |   8000 |      | 18x50 | NVIDIA GB200 NVL72 data sheet, one GPU of 72
B300                  | B300                | Blackwell |  1.25 |    75 |  1125 |   2250 |   4500 |    150 |   8000 |      | 18x50 | NVIDIA Blackwell Ultra data sheet, HGX B300
B200                  | B200                | Blackwell |    37 |    75 |  1100 |   2250 |   4500 |   4500 |   7700 |   63 | 18x50 | NVIDIA Blackwell data sheet, HGX B200
GH200 480GB           | GH200, HBM3         | Hopper    |  66.9 |  66.9 | 494.7 |  989.4 | 1978.9 | 1978.9 |   4000 |      | 18x25 | NVIDIA GH200 Grace Hopper Superchip data sheet
GH200 144G            | GH200, HBM3e        | Hopper    |  66.9 |  66.9 | 494.7 |  989.4 | 1978.9 | 1978.9 |   4900 |      | 18x25 | NVIDIA GH200 Grace Hopper Superchip data sheet
GH200                 |                     | Hopper    |       |       |       |        |        |        |        |      | 18x25 |
H200 NVL              | H200 NVL            | Hopper    |    60 |    60 | 417.5 |  835.5 | 1670.5 | 1670.5 |   4800 |   63 |   x25 | NVIDIA H200 Tensor Core GPU data sheet
H200                  | H200 SXM            | Hopper    |  66.9 |  66.9 | 494.7 |  989.4 | 1978.9 | 1978.9 |   4800 |   63 | 18x25 | NVIDIA H200 Tensor Core GPU data sheet; NVIDIA H100 Tensor Core GPU architecture
H100 NVL              | H100 NVL            | Hopper    |    60 |    60 | 417.5 |  835.5 | 1670.5 | 1670.5 |   3900 |   63 |   x25 | NVIDIA H100 Tensor Core GPU data sheet
H100 PCIe             | H100 PCIe           | Hopper    |    51 |    51 |   378 |  756.5 |   1513 |   1513 |   2000 |   63 |   x25 | NVIDIA H100 Tensor Core GPU data sheet
H100 80GB HBM3        | H100 SXM            | Hopper    |  66.9 |  66.9 | 494.7 |  989.4 | 1978.9 | 1978.9 |   3350 |   63 | 18x25 | NVIDIA H100 Tensor Core GPU data sheet; NVIDIA H100 Tensor Core GPU architecture
H100                  |                     | Hopper    |       |       |       |        |        |        |        |   63 | 18x25 |
H800 PCIe             | H800 PCIe           | Hopper    |   0.8 |    51 |   378 |  756.5 |   1513 |   1513 |   2000 |   63 |   x25 | NVIDIA H800 Tensor Core GPU data sheet
H800                  | H800 SXM            | Hopper    |     1 |  66.9 | 494.7 |  989.4 | 1978.9 | 1978.9 |   3350 |   63 |  8x25 | NVIDIA H800 Tensor Core GPU data sheet; NVIDIA H100 Tensor Core GPU architecture
H20-3e                | H20, HBM3e          | Hopper    |     1 |    44 |    74 |    148 |    296 |    296 |   4800 |   63 | 18x25 | NVIDIA H20 Tensor Core GPU data sheet
H20                   | H20                 | Hopper    |     1 |    44 |    74 |    148 |    296 |    296 |   4000 |   63 | 18x25 | NVIDIA H20 Tensor Core GPU data sheet
A100.*SXM.*80GB       | A100 SXM 80 GB      | Ampere    |  19.5 |  19.5 |   156 |    312 |        |    624 |   2039 | 31.5 | 12x25 | NVIDIA A100 Tensor Core GPU data sheet
A100 80GB PCIe        | A100 PCIe 80 GB     | Ampere    |  19.5 |  19.5 |   156 |    312 |        |    624 |   1935 | 31.5 |   x25 | NVIDIA A100 Tensor Core GPU data sheet
A100-PCIE             | A100 40 GB          | Ampere    |  19.5 |  19.5 |   156 |    312 |        |    624 |   1555 | 31.5 |   x25 | NVIDIA A100 Tensor Core GPU data sheet
A100.*40GB            | A100 40 GB          | Ampere    |  19.5 |  19.5 |   156 |    312 |        |    624 |   1555 | 31.5 | 12x25 | NVIDIA A100 Tensor Core GPU data sheet
A100                  |                     | Ampere    |       |       |       |        |        |        |        | 31.5 | 12x25 |
A800.*PCIe            |                     | Ampere    |       |       |       |        |        |        |        | 31.5 |   x25 |
A800                  |                     | Ampere    |       |       |       |        |        |        |        | 31.5 |  8x25 |
RTX A6000             | RTX A6000           | Ampere    |       |  38.7 |  77.4 |  154.8 |        |  309.7 |    768 | 31.5 |       | NVIDIA Ampere GA102 GPU architecture
RTX A5000             | RTX A5000           | Ampere    |       |  27.8 |  55.6 |  111.1 |        |        |    768 | 31.5 |       | NVIDIA RTX A5000 data sheet; ratios of GA102
RTX A4000             | RTX A4000           | Ampere    |       |  19.2 |  38.3 |   76.7 |        |        |    448 | 31.5 |       | NVIDIA RTX A4000 data sheet; ratios of GA102
RTX 3090$             | RTX 3090            | Ampere    |       |  35.6 |  35.6 |     71 |        |    284 |    936 | 31.5 |       | NVIDIA Ampere GA102 GPU architecture
L40S                  | L40S                | Ada       |       |  91.6 |   183 | 362.05 |    733 |    733 |    864 | 31.5 |       | NVIDIA L40S data sheet
L40                   | L40                 | Ada       |       |  90.5 |  90.5 | 181.05 |    362 |    362 |    864 | 31.5 |       | NVIDIA L40 data sheet
L4                    | L4                  | Ada       |       |  30.3 |    60 |    121 |  242.5 |  242.5 |    300 | 31.5 |       | NVIDIA L4 Tensor Core GPU data sheet
A40                   | A40                 | Ampere    |       |  37.4 |  74.8 |  149.7 |        |  299.3 |    696 | 31.5 |       | NVIDIA A40 data sheet
A10                   | A10                 | Ampere    |       |  31.2 |  62.5 |    125 |        |    250 |    600 | 31.5 |       | NVIDIA A10 Tensor Core GPU data sheet
V100-SXM2             | V100 SXM            | Volta     |   7.8 |  15.7 |       |    125 |        |        |    900 |      |  6x25 | NVIDIA V100 Tensor Core GPU data sheet
V100-PCIE             | V100 PCIe           | Volta     |     7 |    14 |       |    112 |        |        |    900 | 15.8 |   x25 | NVIDIA V100 Tensor Core GPU data sheet
V100-(?:SXM|DGX)\w*   |                     | Volta     |       |       |       |        |        |        |        |      |  6x25 |
T4                    | T4                  | Turing    |       |   8.1 |       |     65 |        |    130 |    320 | 15.8 |       | NVIDIA T4 data sheet
P100-SXM2             | P100 SXM            | Pascal    |   5.3 |  10.6 |       |   21.2 |        |        |    732 |      |       | NVIDIA P100 data sheet
P100-PCIE             | P100 PCIe           | Pascal    |   4.7 |   9.3 |       |   18.7 |        |        |    732 | 15.8 |       | NVIDIA P100 data sheet, 16 GB
RTX PRO 6000 .*Server | RTX PRO 6000 Server | Blackwell |       |   120 |       |        |        |        |   1597 |   63 |       | NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet
RTX PRO 6000 .*Max-Q  | RTX PRO 6000 Max-Q  | Blackwell |       | 109.7 | 219.5 |  438.9 |  877.9 |  877.9 |   1792 |   63 |       | NVIDIA RTX Blackwell PRO GPU architecture
RTX PRO 6000          | RTX PRO 6000        | Blackwell |       |   126 | 251.9 |  503.8 | 1007.6 | 1007.6 |   1792 |   63 |       | NVIDIA RTX Blackwell PRO GPU architecture
RTX 5090$             | RTX 5090            | Blackwell |       | 104.8 | 104.8 |  209.5 |    419 |    838 |   1792 |   63 |       | NVIDIA RTX Blackwell GPU architecture
RTX 4090$             | RTX 4090            | Ada       |       |  82.6 |  82.6 |  165.2 |  330.3 |  660.6 |   1008 | 31.5 |       | NVIDIA Ada GPU architecture
RTX 3090$             | RTX 3090            | Ampere    |       |  35.6 |  35.6 |     71 |        |    284 |    936 | 31.5 |       | NVIDIA Ampere GA102 GPU architecture
MI355X                | MI355X              | CDNA 4    |  78.6 | 157.3 |       | 2516.6 | 5033.2 | 5033.2 |   8000 |   63 |       | AMD Instinct MI355X data sheet
MI350X                | MI350X              | CDNA 4    |  72.1 | 144.2 |       | 2306.9 | 4613.7 | 4613.7 |   8000 |   63 |       | AMD Instinct MI350X data sheet
MI325X                | MI325X              | CDNA 3    | 163.4 | 163.4 | 653.7 | 1307.4 | 2614.9 | 2614.9 |   6000 |   63 |       | AMD Instinct MI325X data sheet
MI300X                | MI300X              | CDNA 3    | 163.4 | 163.4 | 653.7 | 1307.4 | 2614.9 | 2614.9 |   5300 |   63 |       | AMD Instinct MI300X data sheet
MI300A                | MI300A              | CDNA 3    | 122.6 | 122.6 | 490.3 |  980.6 | 1961.2 | 1961.2 |   5300 |      |       | AMD Instinct MI300A data sheet
MI250X / MI250        |                     | CDNA 2    |       |       |       |        |        |        |        |      |       |
MI250X                | MI250X, one die     | CDNA 2    | 47.85 | 23.95 |       |  191.5 |        |  191.5 | 1638.4 |      |       | AMD Instinct MI250X data sheet, half: a device is one of its two dies
MI250                 | MI250, one die      | CDNA 2    | 45.25 | 22.65 |       | 181.05 |        | 181.05 | 1638.4 |      |       | AMD Instinct MI250 data sheet, half: a device is one of its two dies
MI210                 | MI210               | CDNA 2    |  45.3 |  22.6 |       |    181 |        |    181 | 1638.4 | 31.5 |       | AMD Instinct MI210 data sheet
"""  # noqa: E501 - one GPU, one line


WARP = 32
"""Threads that a GPU runs in step, whose additions to one place follow each other: CUDA C++ Programming Guide."""


class Gpu(Struct, frozen=True):
    """A GPU's architecture and peak rates; what is not known is `None` or not in `tflops`.

    Attributes:
        model: name of the GPU model.
        architecture: its generation, as `Hopper`.
        tflops: dense, 10¹² operations a second, by `fp64` (on tensor or matrix cores, where they have it), `fp32` (no
            tensor cores), `tf32`, `bf16`, `fp16`, `fp8`, `int8`.
        gbytes_per_s: memory bandwidth, 10⁹ bytes a second.
        pcie_gbps: decimal GB/s of its ×16 link to the CPU each way.
        nvlinks: how many NVLinks it has.
        nvlink_gbps: decimal GB/s of one of them each way.
        source: title of the document that has the figures.
    """

    model: str
    architecture: str
    tflops: Mapping[str, float]
    gbytes_per_s: float | None
    pcie_gbps: float | None
    nvlinks: int | None
    nvlink_gbps: int | None
    source: str

    @property
    def all_nvlinks_gbps(self) -> int | None:
        """Decimal GB/s that all its NVLinks carry each way."""
        return None if self.nvlinks is None or self.nvlink_gbps is None else self.nvlinks * self.nvlink_gbps


def _cells(text: str, columns: int) -> list[list[str]]:
    return [[cell.strip() for cell in row.rsplit("|", columns - 1)] for row in text.strip().splitlines()]


def _gpu(model: str, architecture: str, *cells: str) -> Gpu:
    fp64, fp32, tf32, half, fp8, int8, memory, pcie = (float(cell) if cell else None for cell in cells[:8])
    links, _, link = cells[8].partition("x")
    has_bf16 = "bf16" in _TYPES.get(architecture, ())
    rates = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "bf16": half if has_bf16 else None, "fp16": half, "fp8": fp8,
             "int8": int8}  # fmt: skip
    tflops = MappingProxyType({name: rate for name, rate in rates.items() if rate is not None})
    return Gpu(
        model, architecture, tflops, memory, pcie, int(links) if links else None, int(link) if link else None, cells[9]
    )


_TYPES = {name: frozenset(types.split()) for name, types, *_ in _cells(_ARCHITECTURES, 4)}


@lru_cache
def gpu_of(device_name: str | None) -> Gpu | None:
    """The GPU of a name as the driver gives it (`NVIDIA H200`); `None` when neither it nor its series is listed."""
    if not device_name:
        return None
    models = _cells(_GPUS, 13)
    series = ([names.replace(", ", "|"), "", name, *[""] * 10] for name, _, names, _ in _cells(_ARCHITECTURES, 4))
    for pattern, *cells in (*models, *series):
        if re.search(rf"(?i)(?<![A-Z0-9])(?:{pattern})(?![A-Z0-9])", device_name.strip()):
            return _gpu(*cells)
    return None


@cache
def fastest_memory_gbps() -> float:
    """Decimal GB/s of the fastest memory of any GPU that is listed."""
    return max(gpu.gbytes_per_s or 0.0 for gpu in (_gpu(*cells) for _, *cells in _cells(_GPUS, 13)))


def peak_of(device_name: str | None) -> Gpu | None:
    """The GPU of a name, where its rates are known."""
    gpu = gpu_of(device_name)
    return gpu if gpu and gpu.tflops else None


def matrix_types(device_name: str | None, kernels: Iterable[str]) -> frozenset[str] | None:
    """Floating-point types that a GPU's tensor or matrix cores compute in; `None` when unknown.

    Of a GPU without a known name: the newest architecture that the names of its kernels are of, which is the oldest
    that it can be.
    """
    gpu = gpu_of(device_name)
    if gpu and gpu.architecture:
        return _TYPES[gpu.architecture]
    text = "\n".join(kernels).lower()
    named = [
        types
        for name, types, _, targets in _cells(_ARCHITECTURES, 4)
        if targets and re.search(rf"(?:sm_?|cutlass_|isa|gfx)(?:{targets})(?!\d)|(?<![a-z]){name.lower()}_", text)
    ]
    return frozenset(named[-1].split()) if named else None


def element_type(dtype: str | None, *, tensor_cores: bool | None) -> str | None:
    """Which peak applies to an element type as a trace has it (`c10::BFloat16`).

    32-bit products run as TF32 on tensor cores or as FP32 without: `None` when the kernel's name does not say which.
    """
    found = element(dtype)
    if found is None or found.name == "fp32":
        return None if found is None or tensor_cores is None else "tf32" if tensor_cores else "fp32"
    return "fp8" if found.torch.startswith("float8") else found.name if found.name in _RATED else None


_RATED = ("fp64", "bf16", "fp16", "int8")


WITHOUT_TRITON = frozenset({"Kepler", "Maxwell", "Pascal"})
"""Architectures of compute capability below 7.0, for which torch.compile makes no kernels (Triton's README)."""


def has_triton(device_name: str | None) -> bool:
    """Whether torch.compile can make kernels for a GPU, as far as its name is known."""
    gpu = gpu_of(device_name)
    return gpu is None or gpu.architecture not in WITHOUT_TRITON
