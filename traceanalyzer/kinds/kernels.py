"""Which kernels communicate: how, whether they wait for peers, and what tells their bytes."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from msgspec import Struct

from traceanalyzer.kinds.collectives import collective
from traceanalyzer.kinds.function_names import function_path, template_arguments

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
