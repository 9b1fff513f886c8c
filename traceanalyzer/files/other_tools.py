"""Files of tools whose output is not read here: what they are, and what to give instead."""

import re
import zlib

FLIGHT_RECORDER = (
    "the flight recorder's record of which collective a job hung in, no trace; analyze-traces doctor --flight-recorder "
    "FOLDER reads the folder of these"
)

_AGAIN = "record with the PyTorch profiler or Nsight Systems"

_JSON = {
    rb"\APK\x03\x04": "a zip archive by its begin; give it a name that ends in .zip",
    rb'\A(?s:(?!.*"traceEvents").*)"(?:pg_config|nccl_version|comm_lib_version)"\s*:': FLIGHT_RECORDER,
    rb'"schema"\s*:\s*"[\d.]+-chakra|execution_trace\|': (
        "a PyTorch execution trace (ExecutionTraceObserver, Chakra), which has no times of GPU work; give the "
        "profiler's own trace, which is recorded beside it"
    ),
    rb'"(?:TraceProcessEvent|CudaEvent|NvtxEvent)"\s*:': (
        "Nsight Systems' export as JSON; give the .nsys-rep file, or nsys export --type=sqlite"
    ),
    rb'"/(?:device:\w+|host):': (
        "a Chrome trace of JAX or TensorFlow (XLA); give the .xplane.pb file, which is written beside it "
        "(plugins/profile/<time>/)"
    ),
    rb'"BeginNs"': (
        "a Chrome trace of rocprof (version 1 or 2); record with rocprofv3 --kernel-trace --memory-copy-trace "
        "--hip-trace --marker-trace"
    ),
    rb'"NEGOTIATE_\w+"': f"a timeline of Horovod, which has no GPU work; {_AGAIN}",
    rb'"viztracer_metadata"|speedscope\.app': (
        f"a profile of Python alone (VizTracer, speedscope), without GPU work; {_AGAIN}"
    ),
}
"""What a text is that holds a key."""

_BY_NAME = {
    ".ncu-rep": f"a report of Nsight Compute, of single kernels that it ran again and again; {_AGAIN}",
    **dict.fromkeys(
        (".pftrace", ".perfetto-trace", ".perfetto"),
        "a Perfetto trace, which is not read; give the captures that it was made of (the PyTorch profiler's .json, "
        "rocprofv3's --output-format json or rocpd)",
    ),
    ".rpd": (
        "a database of rocmProfileData (RPD), which is not read; record with rocprofv3 --kernel-trace "
        "--memory-copy-trace --hip-trace --marker-trace, or with the PyTorch profiler"
    ),
    ".qdstrm": "raw data of Nsight Systems; make a report of it with its QdstrmImporter, or record again",
    **dict.fromkeys((".nvvp", ".nvprof"), f"a profile of nvprof, which is not read; {_AGAIN}"),
    **dict.fromkeys((".prof", ".pstats", ".speedscope"), f"a profile of Python alone, without GPU work; {_AGAIN}"),
}
"""What a file is by the end of its name."""

_PICKLED_DUMP = re.compile(rb"\x80.{0,80}(?:pg_config|nccl_version|comm_lib_version)", re.DOTALL)


def written_by(text: bytes) -> str | None:
    """What a JSON text is by the keys in it, where it is known and is no trace that is read; else `None`.

    Only of a text that no reader understands: a trace may hold some of these keys, too.
    """
    return next((what for pattern, what in _JSON.items() if re.search(pattern, text)), None)


def named_by(name: str) -> str | None:
    """What a file is by its name, where it is known and is no trace that is read; else `None`."""
    return next((what for end, what in _BY_NAME.items() if name.lower().endswith(end)), None)


_BY_BEGIN = {
    _PICKLED_DUMP: FLIGHT_RECORDER,
    re.compile(rb"NCCL (?:INFO|WARN)"): (
        "a log of NCCL, no trace; analyze-traces doctor --nccl-log reads it, or the folder of these"
    ),
    re.compile(rb"(?m)^[\s\x1b\[\d;m]*GPU0\s.*?(?:CPU Affinity|GPU1)"): (
        "a topology of nvidia-smi topo -m, no trace; analyze-traces doctor --topo reads it"
    ),
    re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:'): (
        "a trace of the PyTorch profiler by its begin; give it a name that ends in .json"
    ),
}
"""What a file is that no name tells, by what its begin holds."""

_GZIP = b"\x1f\x8b"


def begun_as(begin: bytes) -> str | None:
    """What a file is by its first bytes, where no reader takes it by its name; `None` where that is not known."""
    is_packed = begin.startswith(_GZIP)
    try:
        text = zlib.decompressobj(wbits=31).decompress(begin) if is_packed else begin
    except zlib.error:
        return None
    found = next((what for pattern, what in _BY_BEGIN.items() if pattern.search(text)), None)
    return found.removesuffix(".json") + ".json.gz" if found and is_packed and found.endswith(".json") else found
