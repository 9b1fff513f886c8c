"""A Kineto document as bytes, written well or in one of the ways in which files are found."""

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.mutations import bytes_mutated, events_mutated, value_mutated


def kineto_bytes(rng: random.Random, content: Any) -> tuple[bytes, str]:
    """A damaged file and the suffix of its name."""
    if rng.random() < 0.55:
        content = value_mutated(rng, content)
    elif rng.random() < 0.5:
        content = events_mutated(rng, content)
    if rng.random() < 0.2 and isinstance(content, dict):
        content = content.get("traceEvents", content)
    text = _json(rng, content)
    if rng.random() < 0.5:
        text = rng.choice(_WRITTEN)(rng, text)
    if rng.random() < 0.25:
        text = bytes_mutated(rng, text)
    if rng.random() < 0.3:
        packed = _gzip(rng, text)
        return (bytes_mutated(rng, packed) if rng.random() < 0.5 else packed), ".json.gz"
    return text, ".json"


def _json(rng: random.Random, content: Any) -> bytes:
    text = json.dumps(
        content,
        indent=rng.choice((None, None, 1, 2)),
        ensure_ascii=rng.random() < 0.5,
        separators=rng.choice((None, (",", ":"))),
    )
    return text.encode(errors="surrogatepass")


def _gzip(rng: random.Random, text: bytes) -> bytes:
    cut = rng.randrange(len(text) + 1) if rng.random() < 0.4 else 0
    return gzip.compress(text[:cut], 1) + gzip.compress(text[cut:], 1) if cut else gzip.compress(text, 1)


def _cut(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def _without_end(_rng: random.Random, text: bytes) -> bytes:
    return text.rstrip().rstrip(b"}").rstrip().rstrip(b"]")


def _trailing_commas(rng: random.Random, text: bytes) -> bytes:
    bracket = rng.choice((b"}", b"]"))
    return text.replace(bracket, b"," + bracket, rng.choice((1, 3, -1)))


def _padded(rng: random.Random, text: bytes) -> bytes:
    return text + b"\0" * rng.choice((1, 512, 70_000))


def _padded_after_cut(rng: random.Random, text: bytes) -> bytes:
    return _cut(rng, text) + b"\0" * 4096


def _marked(_rng: random.Random, text: bytes) -> bytes:
    return b"\xef\xbb\xbf" + text


def _wide(rng: random.Random, text: bytes) -> bytes:
    return text.decode(errors="replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be")))


def _not_numbers(rng: random.Random, text: bytes) -> bytes:
    return text.replace(
        rng.choice((b": 1", b": 0", b":1", b"null")),
        rng.choice((b": NaN", b": Infinity", b": -Infinity")),
        rng.choice((1, 2)),
    )


def _doubled_keys(rng: random.Random, text: bytes) -> bytes:
    key = rng.choice((b'"ts"', b'"name"', b'"args"', b'"cat"', b'"ph"', b'"dur"'))
    return text.replace(key, key + b": " + rng.choice((b"7", b'"x"', b"null", b"{}")) + b", " + key, rng.choice((1, 2)))


def _texts_for_numbers(rng: random.Random, text: bytes) -> bytes:
    import re

    key = rng.choice((b"ts", b"dur", b"tid", b"correlation", b"stream", b"bytes"))
    return re.sub(rb'("' + key + rb'"\s*:\s*)(-?[\d.]+)', rb'\1"\2"', text, count=rng.choice((0, 1, 2)))


def _without_separators(rng: random.Random, text: bytes) -> bytes:
    return text.replace(b"},", b"}", rng.choice((1, 2))) if rng.random() < 0.5 else text.replace(b"}, {", b"}\n{", 3)


def _doubled(_rng: random.Random, text: bytes) -> bytes:
    return text + rng_separator(_rng) + text


def rng_separator(rng: random.Random) -> bytes:
    return rng.choice((b"", b"\n", b","))


_WRITTEN: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _cut, _cut, _cut, _without_end, _trailing_commas, _padded, _padded_after_cut, _marked, _wide, _not_numbers,
    _doubled_keys, _texts_for_numbers, _without_separators, _doubled,
)  # fmt: skip
