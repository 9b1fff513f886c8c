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

_ONE_LINK_GBPS = (
    (re.compile(r"\bGB[23]00\b|\bB[23]00\b", re.IGNORECASE), 50),
    (re.compile(r"\bGH200\b|\b[HA][128]00\b|\bH20\b|\bV100\b", re.IGNORECASE), 25),
)


def nvlink_peak_gbps(device_name: str | None) -> int | None:
    """Decimal GB/s that all NVLinks of one GPU carry in one direction; `None` where the model does not tell.

    Half of the bidirectional figures in NVIDIA's data sheets and architecture white papers: V100 300 GB/s, A100
    600, A800 and H800 400, H100, H200, H20 and GH200 900, B200 and GB200 1,800. PCIe cards reach others by a
    bridge or not at all, which the name does not say.
    """
    return _of_model(_NVLINK_GBPS, device_name)


def one_nvlink_gbps(device_name: str | None) -> int | None:
    """Decimal GB/s of one NVLink in one direction: 25 of generations two to four (V100 to H200), 50 of the fifth."""
    return _of_model(_ONE_LINK_GBPS, device_name)


def _of_model(table: tuple[tuple[re.Pattern[str], int | None], ...], device_name: str | None) -> int | None:
    if not device_name:
        return None
    return next((figure for pattern, figure in table if pattern.search(device_name)), None)
