"""Files of tools whose output is not read here: what they are, and what to give instead."""

import re

FLIGHT_RECORDER = (
    "the flight recorder's record of which collective a job hung in, no trace; analyze-traces doctor --flight-recorder "
    "FOLDER reads the folder of these"
)

_AGAIN = "record with the PyTorch profiler or Nsight Systems"

_JSON = {
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


def is_flight_recorder(begin: bytes) -> bool:
    """Whether a file with this begin is a pickled dump of PyTorch's flight recorder."""
    return bool(_PICKLED_DUMP.match(begin))
