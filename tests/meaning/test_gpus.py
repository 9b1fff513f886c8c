"""Peaks by the names that drivers give."""

import pytest

from traceanalyzer.meaning.gpus import element_type, gpu_of, peak_of


@pytest.mark.parametrize(
    ("device", "gpu", "bf16", "gbytes_per_s"),
    [
        ("NVIDIA H200", "H200 SXM", 989.4, 4800.0),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4, 3350.0),
        ("NVIDIA H100 PCIe", "H100 PCIe", 756.5, 2000.0),
        ("NVIDIA H100 NVL", "H100 NVL", 835.5, 3900.0),
        ("NVIDIA GH200 480GB", "GH200, HBM3", 989.4, 4000.0),
        ("NVIDIA GH200 144G HBM3e", "GH200, HBM3e", 989.4, 4900.0),
        ("NVIDIA H200 NVL", "H200 NVL", 835.5, 4800.0),
        ("NVIDIA B200", "B200", 2250.0, 7700.0),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB", 312.0, 2039.0),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB", 312.0, 1935.0),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB", 312.0, 1555.0),
        ("Tesla V100-SXM2-16GB", "V100 SXM", None, 900.0),
        ("AMD Instinct MI300X", "MI300X", 1307.4, 5300.0),
        ("AMD Instinct MI300X VF", "MI300X", 1307.4, 5300.0),
        ("AMD Instinct MI300A", "MI300A", 980.6, 5300.0),
        ("AMD Instinct MI325X", "MI325X", 1307.4, 6000.0),
        ("AMD Instinct MI350X", "MI350X", 2306.9, 8000.0),
        ("AMD Instinct MI355X", "MI355X", 2516.6, 8000.0),
        ("AMD Instinct MI250X", "MI250X, one die", 191.5, 1638.4),
        ("AMD Instinct MI250", "MI250, one die", 181.05, 1638.4),
        ("AMD Instinct MI210", "MI210", 181.0, 1638.4),
        ("NVIDIA GB200", "GB200", 2500.0, 8000.0),
        ("NVIDIA GB300", "GB300", 2500.0, 8000.0),
        ("NVIDIA B300 SXM6 AC", "B300", 2250.0, 8000.0),
        ("NVIDIA H800", "H800 SXM", 989.4, 3350.0),
        ("NVIDIA H800 PCIe", "H800 PCIe", 756.5, 2000.0),
        ("NVIDIA H20", "H20", 148.0, 4000.0),
        ("NVIDIA H20-3e", "H20, HBM3e", 148.0, 4800.0),
        ("NVIDIA L40S", "L40S", 362.05, 864.0),
        ("NVIDIA L4", "L4", 121.0, 300.0),
        ("NVIDIA A10", "A10", 125.0, 600.0),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 165.2, 1008.0),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", 209.5, 1792.0),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000", 503.8, 1792.0),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Max-Q", 438.9, 1792.0),
        ("Tesla P100-PCIE-16GB", "P100 PCIe", None, 732.0),
    ],
)
def test_peak(device, gpu, bf16, gbytes_per_s):
    peak = peak_of(device)
    assert (peak.model, peak.tflops.get("bf16"), peak.gbytes_per_s) == (gpu, bf16, gbytes_per_s)
    assert peak.source


@pytest.mark.parametrize(
    ("dtype", "tensor_cores", "expected"),
    [
        ("c10::BFloat16", True, "bf16"),
        ("c10::Half", None, "fp16"),
        ("float", True, "tf32"),
        ("float", False, "fp32"),
        ("float", None, None),
        ("double", True, "fp64"),
        ("c10::Float8_e4m3fn", True, "fp8"),
        ("long int", False, None),
        (None, True, None),
    ],
)
def test_element_type(dtype, tensor_cores, expected):
    assert element_type(dtype, tensor_cores=tensor_cores) == expected


@pytest.mark.parametrize(("device", "tflops"), [("NVIDIA H100 80GB HBM3", 66.9), ("NVIDIA A100-SXM4-80GB", 19.5)])
def test_products_in_64_bits_run_on_tensor_cores(device, tflops):
    """The data sheets give half of that for what runs beside them."""
    assert peak_of(device).tflops["fp64"] == tflops


@pytest.mark.parametrize(
    ("device", "gbps"),
    [
        ("NVIDIA H200", 450),
        ("NVIDIA H100 80GB HBM3", 450),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA A100-SXM4-80GB", 300),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA H800", 200),
        ("NVIDIA A800-SXM4-80GB", 200),
        ("NVIDIA B200", 900),
        ("Tesla V100-SXM2-16GB", 150),
        ("Tesla V100-DGXS-32GB", 150),
        ("NVIDIA L40S", None),
    ],
)
def test_nvlinks(device, gbps):
    assert gpu_of(device).all_nvlinks_gbps == gbps
