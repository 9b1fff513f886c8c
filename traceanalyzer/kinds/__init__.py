"""What a name means: kernel or copy → compute, comm or copy; collective; size of a dtype.

The one place that knows names. Everything works on *distinct* names, so cost does not grow with events.
"""

import re

from msgspec import Struct

from traceanalyzer.errors import UsageError
from traceanalyzer.expressions import Expression
from traceanalyzer.kinds.kernels import (
    CALL,
    COLLECTIVES,
    CPU_BACKENDS,
    EXPERTS,
    MESSAGES,
    NEVER,
    PEERS,
    POINT_TO_POINT,
    ROOTED,
    WAIT_ONLY,
    CommKernel,
    collective,
    comm_kernel,
    is_fused,
    kernel_collective,
    libraries,
    speaks_of_communication,
)
from traceanalyzer.kinds.operators import (
    MOST_NAMES,
    OperatorBytes,
    dtype_bytes,
    element,
    element_types,
    inputs_bytes,
    is_comm_operator,
    operator_bytes,
    operator_collective,
)

__all__ = [
    "ACTIVITIES", "CALL", "COLLECTIVES", "CPU_BACKENDS", "CUT_LIST", "EXPERTS", "KINDS", "KNOWN_KINDS", "MESSAGES",
    "MOST_NAMES", "NEVER", "PEERS",
    "POINT_TO_POINT", "ROOTED", "UNKNOWN", "WAIT_ONLY",
    "CommKernel", "CopyKind", "KindRules", "OperatorBytes", "collective", "comm_kernel", "copy_kind", "dtype_bytes",
    "element", "element_types", "inputs_bytes", "is_comm_operator", "is_fused", "kernel_collective", "libraries",
    "operator_bytes", "operator_collective", "speaks_of_communication",
]  # fmt: skip

KNOWN_KINDS = ("compute", "comm", "copy")

UNKNOWN = "unknown"
"""Kind of a CUDA graph that was recorded as one operation, without the kernels inside."""

KINDS = (*KNOWN_KINDS, UNKNOWN)

ACTIVITIES = ("kernel", "memcpy", "memset", "graph")

MEMORIES = {"H": "Host", "D": "Device", "P": "Device"}
"""By the first and last letter of a copy's direction, how names of copies call where it comes from and goes to."""

_COPY = re.compile(r"Memcpy (?P<direction>\w+) \((?P<src>\w+) -> (?P<dst>\w+)\)")

_XPU_COPY = re.compile(r"Memcpy (?P<src>[MHD])2(?P<dst>[MHD])(?: |$)")
"""Intel's names, `Memcpy M2D (MEMORY(Unknown) -> DEVICE)`: M is memory that the driver did not allocate."""

_XPU_MEMORIES = {"M": ("H", "pageable"), "H": ("H", "pinned"), "D": ("D", "device")}

CUT_LIST = "..."
"""Stands in a list of ranks or sizes for those that PyTorch left out."""


class KindRules(Struct, frozen=True):
    """How names become kinds: the built-in rules, after the user's own `KIND=REGEX` rules."""

    extra: tuple[tuple[str, Expression], ...] = ()

    @classmethod
    def parse(cls, rules: tuple[str, ...]) -> "KindRules":
        """Read `--kernel-kind` values such as `comm=my_all_reduce.*`.

        Raises:
            UsageError: a rule is not `KIND=REGEX`, its kind is unknown or its expression does not compile.
        """
        return cls(tuple(_parse_rule(rule) for rule in rules))

    def kind(self, name: str, activity: str) -> str:
        """Kind of the GPU operations called `name`: `compute`, `comm` or `copy`; `unknown` for a whole CUDA graph.

        A peer-to-peer copy between two GPUs is communication; every other copy, and memset, is `copy`. A kernel that
        computes and communicates at once is `compute`; `is_fused` tells it.
        """
        for kind, pattern in self.extra:
            if pattern.search(name):
                return kind
        if activity in ("memcpy", "memset"):
            return "comm" if "PtoP" in name else "copy"
        if activity == "graph":
            return UNKNOWN
        known = comm_kernel(name)
        return "comm" if known and not known.is_fused else "compute"


class CopyKind(Struct, frozen=True):
    """Direction and memory kinds of a copy; `None` where the name does not say."""

    direction: str | None
    source_memory: str | None
    target_memory: str | None


def copy_kind(name: str) -> CopyKind:
    """Direction (`HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH`) and memories (`pinned`, `pageable`, `device`) of a copy."""
    if xpu := _XPU_COPY.match(name):
        (source, source_memory), (target, target_memory) = (_XPU_MEMORIES[end] for end in xpu.groups())
        return CopyKind(f"{source}to{target}", source_memory, target_memory)
    match = _COPY.match(name)
    if not match:
        return CopyKind(None, None, None)
    known = (None if text == "Unknown" else text for text in match.groups())
    direction, *memories = known
    return CopyKind(direction, *(memory and memory.lower() for memory in memories))


def _parse_rule(rule: str) -> tuple[str, Expression]:
    kind, separator, expression = rule.partition("=")
    if not separator or kind not in KNOWN_KINDS or not expression:
        raise UsageError(f"--kernel-kind {rule!r}: write KIND=REGEX with KIND one of {', '.join(KNOWN_KINDS)}")
    return kind, Expression.parse(expression, f"--kernel-kind {rule!r}")
