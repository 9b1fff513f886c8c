"""GPU operations of one device plane: kernels, copies and memsets, with the HLO instruction behind each."""

import re
from typing import Any

import pandas as pd

from traceanalyzer.kinds import MEMORIES, KindRules
from traceanalyzer.meaning.rocm_names import runtime_activity
from traceanalyzer.readers.xplane.events import events, integers, text_of

# Lines of other names repeat the streams' events by step, module and HLO operation.
_STREAM = re.compile(r"^Stream\b.*?#?(\d{1,18})")

_COPY = re.compile(r"^Memcpy([HDP])2([HDP])")


def gpu_ops(plane: Any, rules: KindRules, offset_ns: int) -> pd.DataFrame:
    """Columns of `schema.GPU_OPS`, and `hlo_op`, `hlo_module`, `program_id`."""
    found = events(plane, lambda line: bool(_STREAM.match(line)), offset_ns)
    streams = {line.id: _number(line) for line in plane.lines}
    details = [_texts(found[name]) for name in ("kernel_details", "memcpy_details", "memset_details")]
    names = found["name"].astype("object")
    activities = names.map({name: _activity(name) for name in names.unique()})
    ways = names.map({name: _direction(name) for name in names.unique()}).astype("object")
    memories = details[1].map(_memories, na_action="ignore")
    sources = _either(memories.str[0], ways.str[0].map(MEMORIES))
    targets = _either(memories.str[1], ways.str[-1].map(MEMORIES))
    shown = [_shown(*row) for row in zip(names, ways, sources, targets, strict=True)]
    kinds = {pair: rules.kind(*pair) for pair in set(zip(shown, activities, strict=True))}
    return found.assign(
        name=shown,
        activity=activities,
        kind=[kinds[pair] for pair in zip(shown, activities, strict=True)],
        stream=found["line"].map(streams),
        correlation=integers(found["correlation_id"]).fillna(-1).astype("int64"),
        direction=ways,
        source_memory=sources.str.lower(),
        target_memory=targets.str.lower(),
        bytes=_sizes(
            _either(_parts(details[1], r"\bsize:(\d{1,18})\b"), _parts(details[2], r"\bnum_bytes:(\d{1,18})\b"))
        ),
        grid=_parts(details[0], r"\bgrid:([\d,]+)").str.replace(",", "x"),
        block=_parts(details[0], r"\bblock:([\d,]+)").str.replace(",", "x"),
    ).drop(columns=["line", "correlation_id", "kernel_details", "memcpy_details", "memset_details"])


def _number(line: Any) -> int:
    match = _STREAM.match(text_of(line.name))
    return int(match[1]) if match else int(line.id)


def _activity(name: str) -> str:
    if name.startswith("Memcpy"):
        return "memcpy"
    return "memset" if name.startswith("Memset") else runtime_activity(name) or "kernel"


def _direction(name: str) -> str | None:
    match = _COPY.match(name)
    return f"{match[1]}to{match[2]}" if match else None


def _memories(details: str) -> tuple[str | None, str | None]:
    """`kind_src:pinned kind_dst:device …`; unknown ones are absent."""
    found = [re.search(rf"\bkind_{end}:(\w+)", details) for end in ("src", "dst")]
    source, target = (match[1].capitalize() if match and match[1] != "unknown" else None for match in found)
    return source, target


def _shown(name: str, way: str | None, source: str | None, target: str | None) -> str:
    """A copy as PyTorch names it."""
    return f"Memcpy {way} ({source} -> {target})" if isinstance(way, str) else name


def _parts(details: pd.Series, pattern: str) -> pd.Series:
    """The first group of each distinct text; absent where it is not there."""
    found = {text: match[1] for text in details.dropna().unique() if (match := re.search(pattern, text))}
    return details.map(found).astype("object")


def _texts(values: pd.Series) -> pd.Series:
    """Texts; what is none is absent."""
    return pd.Series(
        [value if isinstance(value, str) else None for value in values], index=values.index, dtype="object"
    )


def _either(one: pd.Series, other: pd.Series) -> pd.Series:
    first = one.astype("object")
    return first.where(first.notna(), other.astype("object"))


def _sizes(texts: pd.Series) -> pd.Series:
    found = [int(text) if isinstance(text, str) else None for text in texts]
    return integers(pd.Series(found, index=texts.index, dtype="object"))
