"""What a name means: kernel or copy → compute, comm or copy; collective; size of a dtype; what an operator moves.

The one place that knows names. Everything works on *distinct* names, so cost does not grow with events.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import zip_longest
from math import prod
from typing import Any

from msgspec import Struct

from traceanalyzer.errors import UsageError

# Regular expressions from users, matched in time linear in the text (RE2).


class Expression(Struct, frozen=True):
    """One expression in RE2 syntax: Python's without look-around and backreferences.

    Attributes:
        pattern: its text.
    """

    pattern: str

    @classmethod
    def parse(cls, text: str, where: str) -> "Expression":
        """Parse the expression; `where` names the option and its value.

        Raises:
            UsageError: it is not a regular expression.
        """
        made = cls(text)
        try:
            made.search("")
        except ValueError as error:
            why = str(error).partition(": ")[2] or str(error)
            raise UsageError(
                f"{where}: not a regular expression ({why}); look-around and backreferences are not supported"
            ) from error
        return made

    @property
    def flags(self) -> int:
        """None; flags are written in the pattern, as `(?i)`."""
        return 0

    def search(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        import pyarrow as pa  # noqa: PLC0415 - only where an expression is given
        import pyarrow.compute as pc  # noqa: PLC0415 - the same

        return bool(pc.match_substring_regex(pa.array([text], pa.large_string()), self.pattern)[0].as_py())


# What GPU operations are: kinds, activities, copies and their memories.


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


# A kernel's own qualified name, and its template arguments, out of the long name that a trace gives.


_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|`anonymous namespace'|_GLOBAL__N_\w*)::")

_SUFFIX = re.compile(r"(?: \[clone [\w.]+\]|\.kd)+$")

_MANGLED = re.compile(r"_ZT?S?N?K?(?=\d)")

_LENGTH = re.compile(r"\d+")

_SHORTER = ((r"\([^()]*\)", "\0"), (r"(<[^<>\0]*)\0", r"\1"), (r"(<[^<>]*)<[^<>]*>", r"\1"))
"""What is in parentheses is marked, within template arguments left out, as are template arguments within others."""


@lru_cache(maxsize=65_536)
def function_path(name: str) -> str:
    """`deep_ep::intranode::dispatch` of `void deep_ep::intranode::dispatch<8, 768>(int4*, …)`, mangled or not.

    Return type, template arguments, function arguments and anonymous namespaces are left out. A name that is no C++
    name stays as it is.
    """
    text = _SUFFIX.sub("", name)
    if mangled := _MANGLED.match(text):
        return "::".join(_mangled_parts(text, mangled.end())) or text
    return re.sub("<[^<>]*>", "", _without_arguments(text)).split(" ")[-1] or _ANONYMOUS.sub("", text)


def template_arguments(name: str) -> tuple[str, ...]:
    """The function's own template arguments, `c10::BFloat16`, `16`, `2`; empty without any, or in a mangled name."""
    found = re.search("<([^<>]*)>$", _without_arguments(_SUFFIX.sub("", name)))
    return tuple(part.strip() for part in found[1].split(",")) if found else ()


def _without_arguments(text: str) -> str:
    """The text without anonymous namespaces and a function's arguments; template arguments have none of their own."""
    text = re.sub(r"operator ?(?:\(\)|[<>=]+)|->", "operator", _ANONYMOUS.sub("", text))
    before = ""
    while text != before:
        before = text
        for pattern, shorter in _SHORTER:
            text = re.sub(pattern, shorter, text)
    return text.partition("\0")[0]


def _mangled_parts(text: str, place: int) -> list[str]:
    """`7deep_ep9intranode8dispatchI…` as its parts, up to the template or function arguments."""
    parts = []
    while length := _LENGTH.match(text, place):
        place = length.end() + int(length[0])
        parts.append(text[length.end() : place])
    return [part for part in parts if part and not part.startswith("_GLOBAL__N_")]


# The field's names of collectives, and what holds of them.


# Order matters: "reduce_scatter" and "all_reduce" both contain "reduce".
_WORDS = {
    "all_reduce": r"all_?reduce|cross_device_reduce|one_shot|two_shot|multimem_red",
    "reduce_scatter": r"reduce_?scatter",
    "all_gather": r"all_?gather",
    "all_to_all": r"all_?to_?all|all2all",
    "send_recv": r"send_?recv|isend_irecv",
    "broadcast": r"broadcast|bcast",
    "barrier": r"barrier",
    "reduce": r"reduce",
    "scatter": r"scatter",
    "gather": r"gather",
    "send": r"send",
    "recv": r"recv|receive",
}

EXPERTS = ("ep_dispatch", "ep_combine")
"""Tokens to the experts that they are for, and back: what each rank sends differs from step to step."""

COLLECTIVES = (*_WORDS, *EXPERTS, "ep_notify", "rma")
"""`ep_notify`: ranks tell each other how many tokens will come; `rma`: one-sided puts and gets."""

ROOTED = ("broadcast", "reduce", "scatter", "gather")
"""Collectives with one root: their ranks do not wait alike."""

POINT_TO_POINT = ("send", "recv", "send_recv")

MESSAGES = "messages"
"""What point-to-point operations are together: one end's send is the other end's receive."""

CPU_BACKENDS = ("gloo:", "mpi:")
"""With what names of collectives begin that the host's processors carry out."""


@lru_cache(maxsize=65_536)
def collective(name: str | None) -> str | None:
    """Field's name of a collective: `all_reduce`, `all_gather`, `send`, …; `None` when the name holds none.

    Takes PyTorch's names (`_allgather_base`), NCCL's functions (`ncclAllReduce`) and kernels
    (`ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`). A fused send/receive kernel is `send_recv`.
    """
    if not name:
        return None
    head = name.split("(", 1)[0]
    return next((field_name for field_name, words in _WORDS.items() if re.search(words, head, re.IGNORECASE)), None)


# Which kernels communicate: how, whether they wait for peers, and what tells their bytes.


WAIT_ONLY, PEERS, NEVER = "only", "peers", "no"
"""What a kernel's duration holds: nothing but waiting, waiting and transfer, transfer."""


CALL = "call"
"""What tells a kernel's bytes and group: arguments of the host's call into the library."""


class CommKernel(Struct, frozen=True):
    """A kernel that communicates.

    Attributes:
        library: that it is of.
        collective: field's name; `None` where the name does not tell.
        waits: `only`, `peers` or `no`.
        is_fused: it computes too; its kind is `compute`.
        group_size: ranks of its group, where a template argument says it.
        dtype: element type, where NCCL's name says it.
        sizes: what tells its bytes: `call` (arguments of the host's call), `operator` (dimensions of the operator that
            launched it); `None` where nothing does.
    """

    library: str
    collective: str | None
    waits: str = PEERS
    is_fused: bool = False
    group_size: int | None = None
    dtype: str | None = None
    sizes: str | None = None


class _Rule(Struct, frozen=True):
    library: str
    pattern: re.Pattern[str]
    is_of_whole_name: bool
    facts: Mapping[str, Any]


_SPEAKS = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|(?:^|_|::)a2av?(?:_|$)|(?:^|_|::)(?:n|r|ms|one)ccl"
    r"|shmem|symm(?:etric)?_mem|userbuffers|deep_?ep|cross_device|multimem_|lamport|(?:^|_|::)p2p(?:_|$)"
    r"|(?:^|_|::)ep_?(?:dispatch|combine)|internode|intranode|inter_node|intra_node"
)
"""Words of communication, in the kernel's own name or in that of an operator, in small letters."""


_DTYPES = {
    "bf16": "BFloat16", "bfloat16": "BFloat16", "__nv_bfloat16": "BFloat16", "rccl_bfloat16": "BFloat16",
    "f16": "Half", "half": "Half", "f32": "Float", "float": "Float", "f64": "Double", "double": "Double",
    "i64": "Long", "int64_t": "Long", "i32": "Int", "int32_t": "Int",
}  # fmt: skip
"""NCCL's words for element types that the reductions are compiled for, and PyTorch's."""

_NCCL_DTYPE = re.compile(
    rf"^nccl\w+?_(?:Sum|Prod|Min|Max|MinMax|PreMulSum|SumPostDiv)\w*?_({'|'.join(_DTYPES)})(?:_|$)"
)


@lru_cache(maxsize=65_536)
def comm_kernel(name: str) -> CommKernel | None:
    """What is known of the kernel of this name; `None` of one that does not communicate, or that no rule knows."""
    path = function_path(name)
    if _is_local(path):
        return None
    rule = next((rule for rule in _rules() if rule.pattern.search(name if rule.is_of_whole_name else path)), None)
    if rule is None:
        return None
    is_fused = bool(rule.facts.get("fused", False))
    return CommKernel(
        library=rule.library,
        collective=None if is_fused else rule.facts.get("collective") or collective(path),
        waits=rule.facts.get("waits", PEERS),
        is_fused=is_fused,
        group_size=_group_size(name, rule.facts.get("ranks")),
        dtype=_dtype(path),
        sizes=rule.facts.get("sizes"),
    )


def kernel_collective(name: str) -> str | None:
    """Field's name of a kernel's collective; of one that no rule knows the first that its own name holds."""
    known = comm_kernel(name)
    return known.collective if known else collective(function_path(name))


def is_fused(name: str) -> bool:
    """Whether the kernel computes and communicates at once."""
    known = comm_kernel(name)
    return known is not None and known.is_fused


@lru_cache(maxsize=65_536)
def speaks_of_communication(name: str) -> bool:
    """Whether a kernel that no rule knows has a name that speaks of communication; known local helpers do not count."""
    path = function_path(name)
    return comm_kernel(name) is None and not _is_local(path) and speaks(path)


def speaks(text: str) -> bool:
    """Whether a word of communication stands in the text."""
    return bool(_SPEAKS.search(text.lower()))


def libraries() -> tuple[str, ...]:
    """The libraries whose kernels are known."""
    return tuple(entry["name"] for entry in _table())


def _is_local(path: str) -> bool:
    return bool(_local().search(path))


def _group_size(name: str, place: int | None) -> int | None:
    arguments = template_arguments(name) if place else ()
    text = arguments[place - 1] if place and len(arguments) >= place else ""
    return int(text) if text.isdigit() else None


def _dtype(path: str) -> str | None:
    found = _NCCL_DTYPE.search(path)
    return _DTYPES[found[1]] if found else None


@cache
def _table() -> list[dict[str, Any]]:
    text = files("traceanalyzer.kinds").joinpath("libraries.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["library"]
    return found


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(entry["name"], _compiled(facts), "text" in facts, facts)
        for entry in _table()
        for facts in entry.get("kernel", [])
    )


def _compiled(facts: Mapping[str, Any]) -> re.Pattern[str]:
    return re.compile(facts["text"]) if "text" in facts else _of_path([facts["path"]])


@cache
def _local() -> re.Pattern[str]:
    return _of_path(path for entry in _table() for path in entry.get("local", []))


def _of_path(patterns: Iterable[str]) -> re.Pattern[str]:
    """Matches a whole path, or its last parts."""
    return re.compile(rf"(?:^|::)(?:{'|'.join(patterns)})$")


# Element types: what people call one, its bytes, torch's name of it, and what else traces call it.


_ELEMENTS = """
fp64  |  8 | float64         | double
fp32  |  4 | float32         | float
fp16  |  2 | float16         | half
bf16  |  2 | bfloat16        |
int64 |  8 | int64           | long, long int
int32 |  4 | int32           | int
int16 |  2 | int16           | short, short int
int8  |  1 | int8            | char, signed char
uint8 |  1 | uint8           | byte, unsigned char
      |  8 | uint64          |
      |  4 | uint32          |
      |  2 | uint16          |
      |  1 | bool            |
      |  1 | float8_e4m3fn   |
      |  1 | float8_e5m2     |
      |  1 | float8_e4m3fnuz |
      |  1 | float8_e5m2fnuz |
      |  1 | float8_e8m0fnu  |
      |  4 | complex32       | complexhalf
      |  8 | complex64       | complexfloat, complex<float>
      | 16 | complex128      | complexdouble, complex<double>
      |  1 |                 | opaquetype<1u>
      |  2 |                 | opaquetype<2u>
      |  4 |                 | opaquetype<4u>
      |  8 |                 | opaquetype<8u>
      | 16 |                 | opaquetype<16u>
"""
"""Those of the last rows are of a kernel that only moves elements; people call by torch's name what has no other."""


class Element(Struct, frozen=True):
    """An element type: what people call it, and torch; empty where it has no such name."""

    name: str
    bytes: int
    torch: str


def _elements() -> dict[str, Element]:
    """By every name in small letters."""
    found: dict[str, Element] = {}
    for row in _ELEMENTS.strip().splitlines():
        name, size, torch, others = (cell.strip() for cell in row.split("|"))
        found |= dict.fromkeys(filter(None, [torch, *others.split(", ")]), Element(name, int(size), torch))
    return found


_ELEMENT = _elements()


def element(dtype: str | None) -> Element | None:
    """The element type that a trace calls so: `c10::BFloat16`, `float`, `long int`; `None` when unknown."""
    return _ELEMENT.get(dtype.lower().removeprefix("c10::").removeprefix("torch.")) if dtype else None


def dtype_bytes(dtype: str | None) -> int | None:
    """Bytes of one element; `None` when unknown."""
    found = element(dtype)
    return found.bytes if found else None


def element_types(text: str) -> str:
    """Element types in a text as people call them: `Float` is `fp32`, `c10::BFloat16` `bf16`."""

    def named(match: re.Match[str]) -> str:
        found = element(match[0])
        return found.name if found and found.name else match[0]

    return re.sub(r"\b(?:c10::|torch\.)?[A-Za-z]\w*", named, text)


# The arguments of an operator's call as a trace records them.


Shape = tuple[int, ...]

MOST_NAMES = 16_384
"""Of distinct ones are remembered: the ranks of a job make the same."""


class Call(Struct, frozen=True):
    """The recorded arguments of a call; without any where they are absent or damaged.

    Attributes:
        shapes: of each argument: nested for lists of tensors, empty for what is no tensor.
        dtypes: element type of each.
        arguments: values of each that is no tensor, as JSON.
    """

    shapes: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @classmethod
    @lru_cache(MOST_NAMES)
    def parse(cls, shapes: str | None, dtypes: str | None = None, arguments: str | None = None) -> "Call":
        """From JSON texts as a trace has them."""
        try:
            parts = [json.loads(text or "[]") for text in (shapes, dtypes, arguments)]
        except ValueError:
            return cls()
        if not all(isinstance(part, list) for part in parts):
            return cls()
        return cls(_frozen(parts[0]), *(tuple(map(str, part)) for part in parts[1:]))

    def shape(self, position: int, ndim: int | None = None) -> Shape:
        """Shape of an argument.

        Raises:
            LookupError: it is no tensor, or not of that many dimensions.
        """
        shape: Shape = self.shapes[position]
        if not is_shape(shape) or len(shape) != (ndim or len(shape)):
            raise LookupError(position)
        return shape

    def value(self, position: int) -> Any:
        """Value of an argument that is no tensor.

        Raises:
            LookupError: it was not recorded.
        """
        try:
            return json.loads(self.arguments[position].lower())
        except json.JSONDecodeError as error:
            raise LookupError(position) from error

    @property
    def tensors(self) -> list[tuple[Shape, str]]:
        """Shape and element type of each argument that is one tensor; an unknown type is empty."""
        pairs: Any = zip_longest(self.shapes, self.dtypes, fillvalue="")
        return [pair for pair in pairs if is_shape(pair[0])]

    @property
    def sizes(self) -> list[Shape]:
        """Shapes of these."""
        return [shape for shape in self.shapes if is_shape(shape)]

    @property
    def first(self) -> Shape | None:
        """Shape of the first argument, where that is a tensor."""
        return self.shapes[0] if is_shape(self.shapes[:1] and self.shapes[0]) else None

    @property
    def listed(self) -> list[Shape]:
        """Shapes of the tensors of a list that comes first, as optimizers have it."""
        first = self.shapes[:1] and self.shapes[0]
        return [*filter(is_shape, first)] if isinstance(first, tuple) else []

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor of floating point, else of the first tensor."""
        types = [dtype for _, dtype in self.tensors if dtype]
        return next((t for t in types if not t.startswith(("long", "int", "bool"))), types[0] if types else None)


def is_shape(value: object) -> bool:
    """Whether it is the shape of one tensor."""
    return isinstance(value, tuple) and bool(value) and all(type(size) is int and size >= 0 for size in value)


def is_list(value: object) -> bool:
    """Whether it has the shapes of a list of tensors."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(part, tuple) for part in value)


def tensor_bytes(shape: Shape, dtype: str | None) -> int | None:
    """Bytes of a tensor; `None` when the element type is unknown."""
    size = dtype_bytes(dtype)
    return None if size is None else prod(shape) * size


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# Which operators of the host communicate, and what their arguments say of the bytes.


_OF_COMMUNICATION = re.compile(
    r"^(?:symm_mem|_c10d_functional|c10d|c10d_functional|_C_custom_ar|deep_ep)::|^(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl):(?!:)"
)

_LOCAL = re.compile(
    r"::(?:wait_tensor|barrier_|monitored_barrier_|\w*copy_(?:in|out)|chunk_cat)\b|^(?:aten|fsdp)::", re.IGNORECASE
)
"""Operators of those libraries, and of PyTorch, that launch nothing that communicates."""


class OperatorBytes(Struct, frozen=True):
    """What an operator's arguments say; `None` where they do not.

    Attributes:
        dtype: element type, in PyTorch's word.
        size_bytes: of the full array: all-gather its output, reduce-scatter its input, else the first tensor.
    """

    dtype: str | None = None
    size_bytes: int | None = None


@lru_cache(maxsize=65_536)
def is_comm_operator(name: str) -> bool:
    """Whether an operator of this name communicates: `symm_mem::…`, `vllm::all_reduce`, `nccl:all_reduce`."""
    return not _LOCAL.search(name) and bool(_OF_COMMUNICATION.search(name) or speaks(name))


def operator_bytes(
    what: str | None, shapes: str | None, dtypes: str | None, ranks: int | None, dtype: str | None
) -> OperatorBytes:
    """Size of a collective's full array from `Input Dims` and `Input type` of its operator, JSON texts both.

    An all-gather of which only the input is seen has `ranks` times its size. Of a list of tensors a trace does not
    give the element type: `dtype` is what the kernel's name says.
    """
    tensors = [own for own in _sizes(shapes, dtypes, dtype) if own.size_bytes]
    if not tensors or what not in ("all_gather", "reduce_scatter"):
        return tensors[0] if tensors else OperatorBytes()
    if len(tensors) > 1 or what == "reduce_scatter":
        return max(tensors, key=lambda tensor: tensor.size_bytes or 0)
    return OperatorBytes(tensors[0].dtype, (tensors[0].size_bytes or 0) * ranks if ranks else None)


def inputs_bytes(shapes: str | None, dtypes: str | None) -> int | None:
    """Bytes of all tensors of `Input Dims` and `Input type`, JSON texts both; `None` where one is unknown."""
    sizes = [own.size_bytes for own in _sizes(shapes, dtypes)]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _sizes(shapes: str | None, dtypes: str | None, dtype_of_lists: str | None = None) -> list[OperatorBytes]:
    """Of each argument: a tensor, or a list of them; nothing of others."""
    call, found = Call.parse(shapes, dtypes), []
    for shape, dtype in zip(call.shapes, call.dtypes, strict=False):
        parts = shape if is_list(shape) else [shape]
        own = dtype_of_lists if is_list(shape) else dtype.removeprefix("c10::")
        size = dtype_bytes(own) if all(map(is_shape, parts)) else None
        found.append(OperatorBytes() if size is None else OperatorBytes(own, size * sum(map(prod, parts))))
    return found


def operator_collective(name: str) -> str | None:
    """The collective that an operator's name says: of `fused_all_gather_matmul` all-gather."""
    return collective(name.rsplit("::", 1)[-1])
