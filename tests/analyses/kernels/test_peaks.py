"""Peaks by the names that drivers give."""

import pytest

from traceanalyzer.analyses.kernels.peaks import element_type, peak_of


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
    ],
)
def test_peak(device, gpu, bf16, gbytes_per_s):
    peak = peak_of(device)
    assert (peak.gpu, peak.tflops.get("bf16"), peak.gbytes_per_s) == (gpu, bf16, gbytes_per_s)
    assert "data sheet" in peak.source


@pytest.mark.parametrize(
    "device",
    [
        None,
        "",
        "NVIDIA GeForce RTX 9999",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA L40",
        "NVIDIA GB200",
        "NVIDIA H800",
        "AMD Instinct MI250X / MI250",
        "AMD Instinct MI100",
        "NVIDIA A10G",
        "Tesla V100S-PCIE-32GB",
    ],
)
def test_unknown_gpu_has_no_peak(device):
    assert peak_of(device) is None


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
