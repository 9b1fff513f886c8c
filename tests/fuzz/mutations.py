"""How inputs are damaged: bytes, texts, and values inside a structure."""

import random
from collections.abc import Callable
from typing import Any

ODD_NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 10**20, 10**400, 0.5, -0.0, 1e-9, 1e18, 1e300,
               float("nan"), float("inf"), float("-inf"))  # fmt: skip
ODD_TEXTS = ("", "0", "1.5", "-7", "nan", "null", "\ud800", "\u202egnp", "\x1b[31m", "\0", "a" * 5000, "</script>", "=1+1", "é€𝄞",
             "../../etc/passwd", "[0, 1, ..., 63]", "ncclDevKernel_AllReduce_Sum_f32", "ProfilerStep#99999999999999999999",
             "ProfilerStep#3", "aten::mm", "aten::scaled_dot_product_attention", "Memcpy HtoD (Pinned -> Device)", "kernel",
             "[[]]", "[1,", "9" * 400)  # fmt: skip
ODD_VALUES = (None, True, False, [], {}, [[]], [None], {"a": {"b": []}}, [1, "2", None], *ODD_NUMBERS, *ODD_TEXTS)


def bytes_mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three damages: flipped bits, lost, doubled and moved stretches, NUL blocks, a cut."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_BYTES)(rng, data)
    return data


def _stretch(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 8, 64, 1000)))


def _flipped(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def _lost(rng: random.Random, data: bytes) -> bytes:
    start, end = _stretch(rng, data)
    return data[:start] + data[end:]


def _doubled(rng: random.Random, data: bytes) -> bytes:
    start, end = _stretch(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 50)) + data[end:]


def _filled(rng: random.Random, data: bytes) -> bytes:
    start, end = _stretch(rng, data)
    return data[:start] + bytes([rng.choice((0, 0, 255, 32))]) * (end - start) + data[end:]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _inserted(rng: random.Random, data: bytes) -> bytes:
    start, _ = _stretch(rng, data)
    what = rng.choice((b"\0", b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\xff\xfe", b"\xed\xa0\x80", b"1e999", b"\n", b"-",
                       b"\x80", b"0" * 40, b"[" * 3000, b"NaN", b"\x00" * 4096, rng.randbytes(8)))  # fmt: skip
    return data[:start] + what + data[start:]


_BYTES = (_flipped, _flipped, _lost, _doubled, _filled, _cut, _inserted)


def value_mutated(rng: random.Random, value: Any) -> Any:
    """A structure of dicts and lists with one to four odd places; the given one is not changed."""
    value = copied(value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        parents = [one for one in containers(value) if one]
        if not parents:
            return copied(rng.choice(ODD_VALUES))
        rng.choice(_VALUES)(rng, rng.choice(parents))
    return value


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list | tuple) else value


def containers(value: Any) -> list[Any]:
    """The structure's dicts and lists, itself first."""
    found = [value] if isinstance(value, dict | list) else []
    for one in found:
        found += [own for own in (one.values() if isinstance(one, dict) else one) if isinstance(own, dict | list)]
    return found


def _key(rng: random.Random, parent: Any) -> Any:
    return rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))


def _set(rng: random.Random, parent: Any) -> None:
    if parent:
        parent[_key(rng, parent)] = copied(rng.choice(ODD_VALUES))


def _nudged(rng: random.Random, parent: Any) -> None:
    """A number that is still one: the figures stay likely and are wrong."""
    numbers = [
        key for key in (parent if isinstance(parent, dict) else range(len(parent))) if type(parent[key]) in (int, float)
    ]
    if not numbers:
        return _set(rng, parent)
    key = rng.choice(numbers)
    old = parent[key]
    parent[key] = rng.choice(
        (-old, old + 1, old - 1, old * 1000, old // 3, old + rng.choice((-50, 50)), 0.0004, str(old), 0, 1)
    )
    return None


def _removed(rng: random.Random, parent: Any) -> None:
    if parent:
        del parent[_key(rng, parent)]


def _swapped(rng: random.Random, parent: Any) -> None:
    one, two = (_key(rng, parent) for _ in range(2))
    parent[one], parent[two] = parent[two], parent[one]


def _repeated(rng: random.Random, parent: Any) -> None:
    if isinstance(parent, list):
        parent += [copied(parent[_key(rng, parent)])] * rng.choice((1, 2, 9))
    else:
        parent[rng.choice(ODD_TEXTS)] = copied(parent[_key(rng, parent)])


def _wrapped(rng: random.Random, parent: Any) -> None:
    key = _key(rng, parent)
    parent[key] = rng.choice(([parent[key]], {"x": parent[key]}, str(parent[key])[:2000]))


_VALUES: tuple[Callable[[random.Random, Any], None], ...] = (
    _set, _set, _set, _nudged, _nudged, _nudged, _removed, _swapped, _repeated, _wrapped,
)  # fmt: skip


def events_mutated(rng: random.Random, content: Any) -> Any:
    """A document of events, damaged so that each event looks well; the given one is not changed."""
    content = copied(content)
    events = [one for one in content["traceEvents"] if "ts" in one and "dur" in one]
    begins, ends = min(one["ts"] for one in events), max(one["ts"] for one in events)
    what = rng.randrange(5)
    if what == 0:  # nested, much deeper than programs are
        category = rng.choice(("user_annotation", "cpu_op", "python_function", "cuda_runtime"))
        depth = rng.choice((50, 2000, 5000))
        content["traceEvents"] += [
            {"ph": "X", "cat": category, "name": f"layer{place}", "pid": 100, "tid": 1, "ts": begins + place / 1000,
             "dur": ends - begins + 9 - place / 500, "args": {}}
            for place in range(depth)
        ]  # fmt: skip
    elif what == 1:  # the GPU's clock beside the CPU's, or one of the ranks beside the others
        moved_us = rng.choice((-5000, -1000, -1, 0.5, 1000, 5000, 3.6e9))
        for one in events:
            one["ts"] += moved_us if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") or moved_us > 1e6 else 0
    elif what == 2:  # a stretch of the middle without one kind of events
        cut = sorted(rng.uniform(begins, ends) for _ in range(2))
        lost = rng.choice(("kernel", "cpu_op", "cuda_runtime", "user_annotation"))
        content["traceEvents"] = [
            one for one in content["traceEvents"] if one.get("cat") != lost or not cut[0] <= one.get("ts", -1) <= cut[1]
        ]
    elif what == 3:  # another rank's number, or a unit that is another
        content["distributedInfo"] = {"rank": rng.choice((0, 1, 7, 2**40, -1)), "world_size": rng.choice((1, 2, 8))}
        for one in events if rng.random() < 0.5 else ():
            one["ts"], one["dur"] = one["ts"] * 1000, one["dur"] * 1000
    else:  # ids that lead elsewhere
        ids = [one["args"].get("correlation") for one in events if "correlation" in one.get("args", {})]
        rng.shuffle(ids)
        for one in events:
            if "correlation" in one.get("args", {}):
                one["args"]["correlation"] = ids.pop()
    return content


def text_mutated(rng: random.Random, text: str) -> str:
    """A text with lines lost, doubled and moved, words swapped, odd pieces put in."""
    for _ in range(rng.choice((1, 2, 3))):
        pieces = text.split(separator := rng.choice(("\n", "\n", " ", "\t", ":", ",")))
        what, place = rng.randrange(6), rng.randrange(len(pieces))
        if what == 0:
            del pieces[place]
        elif what == 1:
            pieces[place:place] = [pieces[place]] * rng.choice((1, 3, 40))
        elif what == 2:
            pieces[place] = str(rng.choice(ODD_VALUES))[:1000]
        elif what == 3:
            other = rng.randrange(len(pieces))
            pieces[place], pieces[other] = pieces[other], pieces[place]
        elif what == 4:
            pieces[place] = pieces[place][: rng.randrange(len(pieces[place]) + 1)]
        else:
            cut = rng.randrange(len(pieces[place]) + 1)
            pieces[place] = (
                pieces[place][:cut]
                + rng.choice(("\0", "\x1b[2J", "é", "(", ")", "\\", "*", "99999999999999999999", "-", "%", " "))
                + pieces[place][cut:]
            )
        text = separator.join(pieces)
    return text
