"""A kernel's own qualified name, and its template arguments, out of the long name that a trace gives."""

import re
from functools import lru_cache
from itertools import pairwise

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
