"""What a run ran on and was recorded with, one thing at a time: software, driver, links, profiler, parallel sizes."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from traceanalyzer.analyses.communication.groups import mesh
from traceanalyzer.diff.captures import ALIKE, Capture, world_size
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import digits
from traceanalyzer.meaning.names import collective_words

_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "PyTorch": ("torch", "pytorch"),
        "CUDA": ("cuda", "cuda_runtime"),
        "NCCL": ("nccl",),
        "driver": ("driver",),
        "CUDA driver": ("cuda_driver",),
        "Python": ("python",),
        "Nsight Systems": ("nsys",),
    }
)
"""Names under which run.json and traces give versions."""

PACKAGES = tuple(_ALIASES)

_PROFILERS = {"kineto": "PyTorch's profiler", "torch": "PyTorch's profiler", "nsys": "Nsight Systems"}

_OPTIONS = ("record_shapes", "with_stack", "profile_memory", "nvtx_ops", "stream_waits")
"""What a profiler was asked to record besides: each slows the host."""

_PARALLEL = (("dp", "data parallel"), ("tp", "tensor parallel"), ("pp", "pipeline"), ("cp", "context parallel"),
             ("ep", "expert parallel"))  # fmt: skip

_LINK = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")


def version_of(package: str) -> Callable[[Capture], str | None]:
    """Version of a package, by run.json, else by the traces; `None` where neither tells or ranks differ."""

    def read(capture: Capture) -> str | None:
        stated = {name: value for name, value in (capture.known.versions or {}).items() if value}
        known = _recorded(capture) | stated
        return next((known[name] for name in _ALIASES[package] if name in known), None)

    return read


def links(capture: Capture) -> str | None:
    """Kinds of links between the host's GPUs, most frequent first: `NV18`, `NV4, SYS`; by run.json's topology."""
    topology = capture.known.topology
    cells = [
        cell
        for line in (topology or "").splitlines()
        if re.match(r"\s*GPU\d+\s", line)
        for cell in line.split()[1:]
        if _LINK.fullmatch(cell)
    ]
    return ", ".join(sorted(set(cells), key=lambda kind: (-cells.count(kind), kind))) or None


def links_used(capture: Capture) -> str | None:
    """How NCCL's ranks reach each other, by run.json: `peer to peer`, `host memory`, `network`."""
    ways = {"P2P": "peer to peer", "SHM": "host memory", "NET": "network"}
    kinds = {name.partition("/")[0] for name in capture.known.transports or ()}
    return " and ".join(ways.get(kind, kind) for kind in sorted(kinds)) or None


def variables(capture: Capture) -> str | None:
    """What was set for NCCL, CUDA and the allocator, by run.json; `none` for nothing."""
    stated = capture.known.environment
    return None if stated is None else ", ".join(f"{name}={value}" for name, value in stated.items()) or "none"


def profiler(capture: Capture) -> str | None:
    """`PyTorch's profiler` or `Nsight Systems`, by the traces, else by run.json."""
    frame = capture.table("ranks")
    formats = sorted(frame["format"].dropna().astype("str").unique()) if frame is not None and "format" in frame else []
    stated = (capture.known.profile or {}).get("profiler")
    named = formats or ([str(stated)] if stated else [])
    return " and ".join(_PROFILERS.get(name, name) for name in named) or None


def profiler_options(capture: Capture) -> str | None:
    """What the profiler recorded besides, by run.json: `record_shapes, stream_waits`; `none` for nothing."""
    stated = capture.known.profile
    if not stated:
        return None
    return ", ".join(name for name in _OPTIONS if stated.get(name)) or "none"


def parallel(capture: Capture) -> str | None:
    """`data parallel 2 × pipeline 2`, by run.json, else as the traces' process groups span it."""
    stated = parallel_sizes(capture)
    if stated:
        return " × ".join(f"{name} {stated[key]}" for key, name in _PARALLEL if stated.get(key, 1) > 1) or "none"
    frame = capture.table("groups")
    if frame is None or "role" not in frame:
        return None
    return mesh(frame, world_size(capture))


def parallel_sizes(capture: Capture) -> dict[str, int]:
    """Sizes by axis (`dp`, `tp`, `pp`) as run.json has them; empty where it does not."""
    stated = capture.known.parallel or {}
    return {key: value for key, _ in _PARALLEL if isinstance(value := stated.get(key), int)}


def schedule(capture: Capture) -> str | None:
    """`1F1B, 4 microbatches`: of the pipelines, as the traces show it; microbatches else by run.json."""
    frame = capture.table("pipelines")
    if frame is None or frame.empty:
        return None
    names = sorted(frame["schedule"].dropna().astype("str").unique())
    numbers = sorted({int(number) for number in frame["microbatches"].dropna()})
    stated = (capture.known.parallel or {}).get("microbatches")
    count = " or ".join(map(str, numbers)) or (str(stated) if isinstance(stated, int) else "")
    parts = [*names, *([f"{count} microbatches"] if count not in ("", "1") else [])]
    return ", ".join(parts) or None


def split(capture: Capture) -> str | None:
    """Blocks by stage of a pipeline, by run.json: `6,2,2,2`."""
    stated = (capture.known.parallel or {}).get("split")
    return ",".join(map(str, stated)) if isinstance(stated, list) else None


def streams_of_copies(capture: Capture) -> str | None:
    """Whether copies between host and GPU run on the streams of compute, on streams of their own, or on both."""
    frame = capture.table("streams")
    if frame is None or "upload_ns" not in frame:
        return None
    is_copying = frame["upload_ns"].fillna(0) + frame["download_ns"].fillna(0) > 0
    times = frame.loc[is_copying, ["upload_ns", "download_ns", "compute_ns"]].fillna(0)
    window = capture.table("breakdown")
    copied = times[["upload_ns", "download_ns"]].sum(axis=1)
    if window is None or not copied.sum() or copied.sum() < ALIKE * float(window["window_ns"].sum()):
        return None
    shared = copied[times["compute_ns"] > 0].sum() / copied.sum()
    return (
        "that of compute" if shared > 1 - ALIKE else "of their own" if shared < ALIKE else "that of compute and others"
    )


def communication(captures: Sequence[Capture]) -> tuple[str | None, ...]:
    """`26 all-gather bf16, 13 reduce-scatter fp32`: calls of a rank in a step, mean over ranks; `none` for none.

    Without element types where a capture does not tell them.
    """
    frames = [capture.table("nccl") for capture in captures]
    has_types = all(frame is None or frame["dtype"].notna().all() for frame in frames)
    return tuple(_communication(capture, has_types) for capture in captures)


def _communication(capture: Capture, has_types: bool) -> str | None:
    frame, ranks = capture.table("nccl"), capture.table("breakdown")
    if ranks is None or not capture.is_exact or (frame is None and "nccl" not in capture.tables):
        return None
    if frame is None:
        return "none"
    number = len(ranks["rank"].unique()) * capture.per
    names = frame["collective"].map(collective_words, na_action="ignore").astype("str")
    if has_types:
        names += " " + frame["dtype"].astype("str").map(element_types)
    calls = frame["calls"].groupby(names).sum() / number
    ordered = sorted(calls.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return ", ".join(f"{digits(float(count))} {name}" for name, count in ordered)


def kernels_made(capture: Capture) -> str | None:
    """Whether a compiler made some of the kernels (Triton's names)."""
    frame = capture.table("kernels")
    if frame is None or "name" not in frame:
        return None
    return "some" if frame["name"].astype("str").str.startswith("triton_").any() else "none"


def _recorded(capture: Capture) -> dict[str, str]:
    """Versions that all ranks' traces name alike."""
    frame = capture.table("ranks")
    texts = frame["versions"].dropna().unique() if frame is not None and "versions" in frame else []
    if len(texts) != 1:
        return {}
    pairs = (part.rpartition(" ") for part in str(texts[0]).split(", "))
    return {name: version for name, _, version in pairs if name}
