"""What a GPU's links to the others can carry at most."""

import re

_NVLINK_GBPS = (
    (re.compile(r"\bGB[23]00\b|\bB[23]00\b", re.IGNORECASE), 900),
    (re.compile(r"\bH100 PCIe\b|\bNVL\b", re.IGNORECASE), None),
    (re.compile(r"\bGH200\b|\bH200\b|\bH100\b|\bH20\b", re.IGNORECASE), 450),
    (re.compile(r"\b[HA]800\b", re.IGNORECASE), 200),
    (re.compile(r"\bA100\b.*PCIe", re.IGNORECASE), None),
    (re.compile(r"\bA100\b", re.IGNORECASE), 300),
    (re.compile(r"\bV100-(SXM|DGX)", re.IGNORECASE), 150),
)


def nvlink_peak_gbps(device_name: str | None) -> int | None:
    """Decimal GB/s that all NVLinks of one GPU carry in one direction; `None` where the model does not tell.

    Half of the bidirectional figures in NVIDIA's data sheets and architecture white papers: V100 300 GB/s, A100
    600, A800 and H800 400, H100, H200, H20 and GH200 900, B200 and GB200 1,800. PCIe cards reach others by a
    bridge or not at all, which the name does not say.
    """
    if not device_name:
        return None
    return next((peak for pattern, peak in _NVLINK_GBPS if pattern.search(device_name)), None)
