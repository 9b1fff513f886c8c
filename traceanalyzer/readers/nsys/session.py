"""What an export says of the capture itself: its clock, its versions and the names of its GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.readers.nsys.source import Source, int_values, text_values

EXPORT = "META_DATA_EXPORT"
_START = "TARGET_INFO_SESSION_START_TIME"
_GPU = "TARGET_INFO_GPU"
_CUDA_DEVICE = "TARGET_INFO_CUDA_DEVICE"
_DETAILS = "ANALYSIS_DETAILS"
SESSION_TABLES = (_START, _GPU, _CUDA_DEVICE, _DETAILS)

_LATEST_NS = 4 * 10**18

_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "nsys schema"}
_NORMALIZED = "EXPORT_PARAM_TIME_NORMALIZE"
SETTINGS = (*_VERSIONS, _NORMALIZED)
"""Of the export's own settings, those that are read."""


@dataclass(frozen=True, slots=True)
class Session:
    """The capture.

    Attributes:
        offset_ns: added to a time of the export, ns since the epoch; 0 where `has_clock` is false.
        has_clock: whether times are known to be UTC, so that several reports share a clock.
        length_ns: of the captured stretch, which begins at 0.
        versions: of Nsight Systems and of the export's schema.
        gpu_of: (operating system's process, CUDA device) → GPU of the machine.
        gpu_names: GPU of the machine → its name.
        gpu_bytes: GPU of the machine → its memory, where the report says it.
    """

    offset_ns: int
    has_clock: bool
    length_ns: int | None
    versions: Mapping[str, str]
    gpu_of: Mapping[tuple[int, int], int]
    gpu_names: Mapping[int, str]
    gpu_bytes: Mapping[int, int]

    def gpu(self, process_number: int, device: int) -> int:
        """GPU of the machine that a process calls `device`."""
        return self.gpu_of.get((process_number, device), device)

    def gpus_seen(self, process_number: int) -> int | None:
        """How many of the machine's GPUs a process sees; `None` where the report does not say which are its own."""
        own = {gpu for (process, _), gpu in self.gpu_of.items() if process == process_number}
        return len(own) or None


def read_session(source: Source) -> Session:
    """The capture's head."""
    settings = _settings(source)
    # A normalised export has its times shifted to UTC already.
    is_utc = settings.get(_NORMALIZED, "").lower() in ("true", "1")
    starts = int_values(source.read(_START, ints=("utcEpochNs",)), "utcEpochNs", 0)
    epoch = int(starts[0]) if len(starts) and 0 < starts[0] <= _LATEST_NS else 0
    return Session(
        offset_ns=0 if is_utc else epoch,
        has_clock=is_utc or epoch > 0,
        length_ns=_length(source),
        versions={ours: settings[name] for name, ours in _VERSIONS.items() if name in settings},
        gpu_of=_gpus_of_processes(source),
        gpu_names=_gpu_names(source),
        gpu_bytes=_gpu_bytes(source),
    )


def is_plain_setting(value: str | None) -> bool:
    """Whether a setting's value is a version or a yes or no, as those that are read are."""
    return re.fullmatch(r"[\d.]+|true|false", value or "", re.IGNORECASE) is not None


def _settings(source: Source) -> dict[str, str]:
    rows = source.read(EXPORT, texts=("name", "value"))
    pairs = zip(text_values(rows, "name"), text_values(rows, "value"), strict=True)
    return {name: value for name, value in pairs if name in SETTINGS and is_plain_setting(value)}


def _length(source: Source) -> int | None:
    lengths = int_values(source.read(_DETAILS, ints=("duration",)), "duration", 0)
    return int(lengths.max()) if len(lengths) and lengths.max() > 0 else None


def _gpus_of_processes(source: Source) -> dict[tuple[int, int], int]:
    rows = source.read(_CUDA_DEVICE, ints=("gpuId", "cudaId", "pid"))
    frame = pd.DataFrame({name: int_values(rows, name) for name in ("pid", "cudaId", "gpuId")})
    frame = frame[(frame["gpuId"] >= 0) & (frame["cudaId"] >= 0)]
    return {(int(pid), int(device)): int(gpu) for pid, device, gpu in frame.itertuples(index=False, name=None)}


def _gpu_names(source: Source) -> dict[int, str]:
    rows = source.read(_GPU, ints=("id",), texts=("name",))
    ids = int_values(rows, "id").tolist()
    return {one: name for one, name in zip(ids, text_values(rows, "name"), strict=True) if name}


def _gpu_bytes(source: Source) -> dict[int, int]:
    rows = source.read(_GPU, ints=("id", "totalMemory"))
    sizes = zip(int_values(rows, "id").tolist(), int_values(rows, "totalMemory", 0).tolist(), strict=True)
    return {one: size for one, size in sizes if size > 0}
