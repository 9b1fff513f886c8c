"""Which kernels communicate, and the qualified names inside kernels' names."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from msgspec import Struct

# A kernel's own qualified name, and its template arguments, out of the long name that a trace gives.


_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|`anonymous namespace'|_GLOBAL__N_\w*)::")

_SUFFIX = re.compile(r"(?: \[clone [\w.]+\]|\.kd)+$")

_SIGN = re.compile(r"operator ?(?:\(\)|<=>|<=|>=|<<|>>|<|>)|->|(?P<bracket>[<>()])|(?P<comma>,)")

_MANGLED = re.compile(r"_ZT?S?N?K?(?=\d)")

_LENGTH = re.compile(r"\d+")

_CAST = re.compile(r"^\([a-z ]+\)")
"""Nsight Systems writes `(int)2` and `(bool)1`."""


@lru_cache(maxsize=65_536)
def function_path(name: str) -> str:
    """`deep_ep::intranode::dispatch` of `void deep_ep::intranode::dispatch<8, 768>(int4*, …)`, mangled or not.

    Return type, template arguments, function arguments and anonymous namespaces are left out. A name that is no C++
    name stays as it is.
    """
    text = _SUFFIX.sub("", name)
    if mangled := _MANGLED.match(text):
        return "::".join(_mangled_parts(text, mangled.end())) or text
    text = _ANONYMOUS.sub("", text)
    lists, end = _argument_lists(text)
    begins = [0, *(last + 1 for _, last, _ in lists)]
    ends = [*(first for first, _, _ in lists), end]
    outside = "".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))
    return outside.split(" ")[-1] or text


def template_arguments(name: str) -> tuple[str, ...]:
    """The function's own template arguments, `c10::BFloat16`, `16`, `2`; empty without any, or in a mangled name."""
    text = _ANONYMOUS.sub("", _SUFFIX.sub("", name))
    lists, end = _argument_lists(text)
    if not lists or lists[-1][1] + 1 != end:
        return ()
    first, last, commas = lists[-1]
    bounds = [first, *commas, last]
    parts = (text[begin + 1 : end].strip() for begin, end in pairwise(bounds))
    return tuple(_CAST.sub("", part) for part in parts)


def _argument_lists(text: str) -> tuple[list[tuple[int, int, list[int]]], int]:
    """The outermost `<…>`: where each begins and ends and its commas; and where the function's arguments begin."""
    made: list[tuple[int, int, list[int]]] = []
    held: list[str] = []
    first, commas = 0, list[int]()
    for found in _SIGN.finditer(text):
        sign = found["bracket"]
        if found["comma"] and len(held) == 1:
            commas.append(found.start())
        elif sign == "(" and not held:
            return made, found.start()
        elif sign == "(" or (sign == "<" and held[-1:] != ["("]):
            if not held:
                first, commas = found.start(), []
            held.append(sign)
        elif held and (held[-1], sign) in (("<", ">"), ("(", ")")):  # within (…) a > compares
            held.pop()
            if not held:
                made.append((first, found.start(), commas))
    return made, len(text)


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
