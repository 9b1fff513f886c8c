"""Files of tools whose output is not read here: what they are, and what to give instead."""

import re
import zlib
from collections.abc import Collection

FLIGHT_RECORDER = (
    "the flight recorder's record of which collective a job hung in, no trace; analyze-traces doctor --flight-recorder "
    "FOLDER reads the folder of these"
)

_AGAIN = "record with the PyTorch profiler or Nsight Systems"

_ROCPROFV3 = "rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace"

_RPD = f"rocmProfileData (RPD), which is not read; record with {_ROCPROFV3}, or with the PyTorch profiler"

_NVPROF = f"nvprof, which is not read; {_AGAIN}"

_PROTON = f"Triton's Proton, which is not read: it has kernels alone, without their GPU, copies and calls; {_AGAIN}"

_ASCEND = "of Ascend's profiler, of NPU devices, which are not read"

_NEURON = "of AWS Neuron's profiler, of NeuronCores, which are not read"

_SNAPSHOT = (
    "a memory snapshot of PyTorch as JSON, no trace; analyze-traces memory reads the .pickle that "
    "torch.cuda.memory._dump_snapshot writes"
)

_MEMORY_TIMELINE = (
    "a memory timeline of PyTorch (export_memory_timeline), no trace; give what export_chrome_trace writes"
)

_FETCHED = {
    rb"\Aversion https://git-lfs\.": "a Git LFS pointer in place of the file; fetch the file itself with git lfs pull",
    rb"(?i)\A\s*<(?:!doctype )?html": "a web page in place of the file, such as a login page; download it again",
}
"""What stands in place of a file that was not fetched."""

_JSON = {
    **_FETCHED,
    rb"\APK\x03\x04": "a zip archive by its begin; give it a name that ends in .zip",
    rb'\A(?s:(?!.*"traceEvents").*)"(?:pg_config|nccl_version|comm_lib_version)"\s*:': FLIGHT_RECORDER,
    rb'"schema"\s*:\s*"[\d.]+-chakra|execution_trace\|': (
        "a PyTorch execution trace (ExecutionTraceObserver, Chakra), which has no times of GPU work; give the "
        "profiler's own trace, which is recorded beside it"
    ),
    rb'"(?:TraceProcessEvent|CudaEvent|NvtxEvent)"\s*:': (
        "Nsight Systems' export as JSON; give the .nsys-rep file, or nsys export --type=sqlite"
    ),
    rb'"/device:TPU': "a Chrome trace of JAX or TensorFlow on TPUs, whose captures are not read",
    rb'"/(?:device:\w+|host):': (
        "a Chrome trace of JAX or TensorFlow (XLA); give the .xplane.pb file, which is written beside it "
        "(plugins/profile/<time>/)"
    ),
    rb'"/job:\w+/': (
        "a timeline of TensorFlow 1 (RunMetadata), which is not read; record with tf.profiler.experimental, and "
        "give the .xplane.pb file"
    ),
    rb'"BeginNs"': f"a Chrome trace of rocprof (version 1 or 2); record with {_ROCPROFV3} --output-format json",
    rb'"ph"\s*:\s*"X"\s*,\s*"args"\s*:\s*\{\s*"desc"\s*:': f"a Chrome trace of {_RPD}",
    rb'"pid"\s*:\s*"Device \d+"': (
        "a Chrome trace made from a report of Nsight Systems; give the .nsys-rep file, or nsys export --type=sqlite"
    ),
    rb'"CommHash"\s*:|"cat"\s*:\s*"(?:PROXY|GROUP_API)"': (
        f"a trace of NCCL's profiler plugin, of NCCL's own events, without GPU work; {_AGAIN}"
    ),
    rb'"coll_perf"\s*:': "records of NCCL Inspector, no trace; analyze-traces doctor --monitor FOLDER reads them",
    rb'"name"\s*:\s*"(?:Ascend Hardware|CANN)"|"Task Type"\s*:\s*"AI_': f"a trace {_ASCEND}",
    rb'"(?:bir_instruction_name|tensor_engine_active_time\w*|Neuron_Runtime_Event_Type|ntff_version)"\s*:': (
        f"output {_NEURON}"
    ),
    rb'"device_traces"\s*:|"segments"\s*:\s*\[\s*\{[^{}]*"total_size"': _SNAPSHOT,
    rb'\A\s*\[\s*\[\s*-?\d+(?:\.\d+)?\s*,\s*(?:-?\d|"(?:PREEXISTING|CREATE|DESTROY)")': _MEMORY_TIMELINE,
    rb'"metrics"\s*:\s*\{[^{}]*"device_type"|"call_stack"\s*:\s*\[': f"a profile of {_PROTON}",
    rb'"NEGOTIATE_\w+"': f"a timeline of Horovod, which has no GPU work; {_AGAIN}",
    rb'"viztracer_metadata"|speedscope\.app': (
        f"a profile of Python alone (VizTracer, speedscope), without GPU work; {_AGAIN}"
    ),
}
"""What a text is that holds a key."""

_BY_NAME = {
    ".ncu-rep": f"a report of Nsight Compute, of single kernels that it ran again and again; {_AGAIN}",
    **dict.fromkeys(
        (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto"),
        "a Perfetto trace, which is not read; give the captures that it was made of, or write those (the PyTorch "
        "profiler's .json, also of Cuspy; rocprofv3's --output-format json or rocpd)",
    ),
    ".rpd": f"a database of {_RPD}",
    ".qdstrm": "raw data of Nsight Systems; make a report of it with its QdstrmImporter, or record again",
    **dict.fromkeys((".nvvp", ".nvprof"), f"a profile of {_NVPROF}"),
    **dict.fromkeys((".hatchet", ".chrome_trace"), f"a profile of {_PROTON}"),
    **dict.fromkeys((".ntff", ".neff"), f"a file {_NEURON}"),
    **dict.fromkeys((".prof", ".pstats", ".speedscope"), f"a profile of Python alone, without GPU work; {_AGAIN}"),
}
"""What a file is by the end of its name."""

_PICKLED_DUMP = re.compile(rb"\x80.{0,80}(?:pg_config|nccl_version|comm_lib_version)", re.DOTALL)


def written_by(text: bytes) -> str | None:
    """What a JSON text is by the keys in it, where it is known and is no trace that is read; else `None`.

    Only of a text that no reader understands: a trace may hold some of these keys, too.
    """
    return next((what for pattern, what in _JSON.items() if re.search(pattern, text)), None)


_BY_TABLE = {
    "rocpd_api_ops": f"a database of {_RPD}",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": f"a profile of {_NVPROF}",
    "CANN_API": f"a database {_ASCEND}",
}
"""What a database is that has a table."""


def database_of(tables: Collection[str]) -> str | None:
    """What a database is by its tables, where it is known and is no trace that is read; else `None`."""
    return next((what for table, what in _BY_TABLE.items() if table in tables), None)


def named_by(name: str) -> str | None:
    """What a file is by its name, where it is known and is no trace that is read; else `None`."""
    return next((what for end, what in _BY_NAME.items() if name.lower().endswith(end)), None)


_PYTORCH = "a trace of the PyTorch profiler by its begin; give it a name that ends in .json"

_BY_BEGIN = {
    _PICKLED_DUMP: FLIGHT_RECORDER,
    re.compile(rb"NCCL (?:INFO|WARN)"): (
        "a log of NCCL, no trace; analyze-traces doctor --nccl-log reads it, or the folder of these"
    ),
    re.compile(rb"(?m)^[\s\x1b\[\d;m]*GPU0\s.*?(?:CPU Affinity|GPU1)"): (
        "a topology of nvidia-smi topo -m, no trace; analyze-traces doctor --topo reads it"
    ),
    re.compile(rb'"schemaVersion"\s*:'): _PYTORCH,
    re.compile(rb'\A"?Kind"?,"?Agent_Id|\A"?Domain"?,"?Function"?,"?Process_Id'): (
        "a table of rocprofv3, which is not read; record with rocprofv3 --output-format json or rocpd"
    ),
    re.compile(rb'\A"?Index"?,"?KernelName'): (
        f"a table of rocprof (version 1 or 2), which is not read; record with {_ROCPROFV3} --output-format json"
    ),
    re.compile(rb"\A(?:=+\d+=+ .*\n)*=+\d+=+ NVPROF"): f"a table of {_NVPROF}",
    re.compile(rb'\A(?:Start \(ns\)|Time \(%\)|"Time \(%\)"),'): (
        "a table of nsys stats, which is not read; give the .nsys-rep file, or nsys export --type=sqlite"
    ),
    re.compile(rb"<title>GPU Memory Timeline"): _MEMORY_TIMELINE,
    **{re.compile(pattern): what for pattern, what in _FETCHED.items()},
}
"""What a file is that no name tells, by what its begin holds."""

_IS_JSON = re.compile(rb"\A\s*[\[{]")

_GZIP = b"\x1f\x8b"


def format_of_start(begin: bytes) -> str | None:
    """What a file is by its first bytes, where no reader takes it by its name; `None` where that is not known."""
    is_packed = begin.startswith(_GZIP)
    try:
        text = zlib.decompressobj(wbits=31).decompress(begin) if is_packed else begin
    except zlib.error:
        return None
    found = next((what for pattern, what in _BY_BEGIN.items() if pattern.search(text)), None)
    if found is None and _IS_JSON.match(text):
        found = written_by(text) or (_PYTORCH if b'"traceEvents"' in text else None)
    return found.removesuffix(".json") + ".json.gz" if found and is_packed and found.endswith(".json") else found
