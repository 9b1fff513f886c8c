"""The NVTX ranges of all processes of an export: the user's, the libraries' and PyTorch's operators."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.model.make import LATEST_NS
from traceanalyzer.readers.nsys.source import Source, category, int_values, is_known, text_values
from traceanalyzer.readers.nsys.tables import process_of, thread_of

NVTX = "NVTX_EVENTS"
NCCL_DOMAIN = "NCCL"

_DOMAIN_CREATED = 75

_BARE_NCCL = re.compile(
    r"(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Gather|Scatter|AlltoAll|AllToAll|Send|Recv"
    r"|Group(?:Start|End)|Comm(?:Init|Split|Destroy|Finalize|Abort)\w*)$"
)
# Push/pop and start/end ranges, of a program and of an imported nvtxt file.
_RANGES = (59, 60, 70, 71)

_NUMBER = re.compile(r"\d+")

# As `emit_nvtx` of PyTorch writes: "aten::mm, seq = 123, op_id = 5, sizes = [[2, 3]], input_op_ids = …".
_EMITTED = (
    r"(?s)^(?P<name>.*?)(?:, seq = (?P<seq>-?\d{1,18}))?(?:, op_id = (?P<op>\d+))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
# Operators without namespace or sequence number; every other such name is the user's record_function.
_BARE_OPERATORS = ("detach", "record_param_comms", "PythonSubclass")
_AUTOGRAD = r"^autograd::engine::|Backward\d*$|^torch::autograd::AccumulateGrad$"


@dataclass(frozen=True, slots=True)
class Nvtx:
    """Ranges of all processes; times are the export's own.

    Attributes:
        ranges: columns of `model.RANGES`, `process`, and `payload` (hexadecimal, "" without one).
        operators: columns of `model.HOST_OPS`, and `process`.
        open_ranges: how many had no end and were given one (`_ends`).
    """

    ranges: pd.DataFrame
    operators: pd.DataFrame
    open_ranges: int


def read_nvtx(source: Source, containing: Sequence[str] = ()) -> Nvtx:
    """Split the export's ranges into PyTorch's operators and all others.

    Args:
        source: the export.
        containing: only ranges whose name contains one of these, in any case; all when empty.
    """
    rows = source.read(
        NVTX,
        ints=("start", "end", "eventType", "globalTid", "textId", "domainId"),
        texts=("text",),
        blobs=("binaryData",),
        containing=containing,
    )
    domains = _domain_names(source, rows)
    rows = rows.filter(pa.array(np.isin(int_values(rows, "eventType"), _RANGES) & is_known(rows, "start")))
    codes, texts = _names(source, rows)
    parsed = _parse(texts)
    is_operator = parsed.is_operator[codes]
    frame = _times(rows, parsed.name[codes], parsed.names)
    others = np.flatnonzero(~is_operator)
    return Nvtx(
        ranges=_ranges(
            rows.take(pa.array(others)), frame.iloc[others], parsed.names, parsed.name[codes[others]], domains
        ),
        operators=_operators(frame[is_operator], codes[is_operator], parsed),
        open_ranges=int((~is_known(rows, "end")).sum()),
    )


def _domain_names(source: Source, rows: pa.Table) -> dict[tuple[int, int], str]:
    """Name of each (process, domain); the rows that name them may be missing."""
    created = rows.filter(pa.array(int_values(rows, "eventType") == _DOMAIN_CREATED))
    codes, texts = _names(source, created)
    names = texts.to_pylist()
    processes = process_of(int_values(created, "globalTid", 0)).tolist()
    ids = int_values(created, "domainId", 0).tolist()
    return {
        (process, domain): names[code]
        for process, domain, code in zip(processes, ids, codes.tolist(), strict=True)
        if domain
    }


def _names(source: Source, rows: pa.Table) -> tuple[np.ndarray, pa.Array]:
    """Each row's text as a position in the distinct texts: its own, else the registered string."""
    own = rows["text"].combine_chunks().cast(pa.large_string()).fill_null("").dictionary_encode()
    codes = own.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    is_registered = pc.equal(own.dictionary, "").to_numpy(zero_copy_only=False)[codes]
    id_codes, ids = pd.factorize(int_values(rows, "textId")[is_registered])
    texts = source.strings(ids)
    codes[is_registered] = id_codes + len(own.dictionary)
    registered = [texts.get(int(one)) or "(range without a name)" for one in ids]
    return codes, pa.concat_arrays([own.dictionary, pa.array(registered, pa.large_string())])


def _times(rows: pa.Table, name: np.ndarray, names: list[str]) -> pd.DataFrame:
    start = int_values(rows, "start", 0)
    thread = int_values(rows, "globalTid", 0)
    ends, is_open = _ends(rows, start, thread, name, names)
    return pd.DataFrame(
        {
            "process": process_of(thread),
            "start_ns": start,
            "end_ns": ends,
            "is_open": is_open,
            "thread": thread_of(thread),
        }
    )


def _ends(
    rows: pa.Table, start: np.ndarray, thread: np.ndarray, name: np.ndarray, names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the ranges; of those without one the start of the next on their thread of that name, numbers apart.

    A program that never closes its steps marks where they begin. The last of them is open: its end is that of the
    capture's last range.
    """
    ends, is_open = int_values(rows, "end", np.iinfo(np.int64).min), ~is_known(rows, "end")
    if not is_open.any():
        return ends, is_open
    last = max(int(times.max(initial=0, where=times <= LATEST_NS)) for times in (ends, start))
    kind = pd.factorize(np.array([_NUMBER.sub("#", text) for text in names], dtype=object))[0][name]
    order = np.lexsort((start, kind, thread))
    is_next = (thread[order][1:] == thread[order][:-1]) & (kind[order][1:] == kind[order][:-1])
    following, is_followed = np.full(len(start), last), np.zeros(len(start), dtype=bool)
    following[order[:-1]], is_followed[order[:-1]] = np.where(is_next, start[order][1:], last), is_next
    return np.where(is_open, following, ends), is_open & ~is_followed


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What each distinct text says; `name` and `shape` are positions in `names` and `shapes`."""

    name: np.ndarray
    names: list[str]
    sequence: pd.arrays.IntegerArray
    shape: np.ndarray
    shapes: list[str | None]
    is_operator: np.ndarray
    is_autograd: np.ndarray


def _parse(texts: pa.Array) -> _Parsed:
    """Take PyTorch's additions off the texts, and tell its operators from all others."""
    fields = pc.extract_regex(texts, _EMITTED)
    name, sequence, op, sizes = (pc.struct_field(fields, part) for part in ("name", "seq", "op", "sizes"))
    has_sequence = pc.not_equal(sequence, "")
    emitted = pc.or_(pc.not_equal(op, ""), has_sequence)
    bare = pc.is_in(name, value_set=pa.array(_BARE_OPERATORS, pa.large_string()))
    operator = pc.or_(pc.or_(has_sequence, pc.match_substring(name, "::")), bare)
    names, shapes = name.dictionary_encode(), pc.replace_substring(sizes, " ", "").dictionary_encode()
    numbers = pc.if_else(has_sequence, sequence, "0").cast(pa.int64())
    return _Parsed(
        name=names.indices.to_numpy(zero_copy_only=False),
        names=names.dictionary.to_pylist(),
        sequence=pd.arrays.IntegerArray(numbers.to_numpy().copy(), ~_mask(has_sequence)),
        shape=shapes.indices.to_numpy(zero_copy_only=False),
        shapes=[shape or None for shape in shapes.dictionary.to_pylist()],
        is_operator=_mask(pc.and_(emitted, operator)),
        is_autograd=_mask(pc.match_substring_regex(name, _AUTOGRAD)),
    )


def _mask(array: pa.Array) -> np.ndarray:
    mask: np.ndarray = array.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _ranges(
    rows: pa.Table, frame: pd.DataFrame, names: list[str], codes: np.ndarray, domains: dict[tuple[int, int], str]
) -> pd.DataFrame:
    name = category(codes, names)
    domain = _domains(frame["process"].to_numpy(), int_values(rows, "domainId", 0), domains)
    # The row that names NCCL's domain may be missing; NCCL's functions are known by their names.
    is_nccl = np.array([_is_nccl(text) for text in name.categories], dtype=bool)
    if NCCL_DOMAIN not in domain.categories:
        domain = domain.add_categories([NCCL_DOMAIN])
    domain[domain.isna() & is_nccl[name.codes]] = NCCL_DOMAIN
    domain[domain.isna() & _is_nccls_own(frame["process"].to_numpy(), int_values(rows, "domainId", 0), name)] = (
        NCCL_DOMAIN
    )
    named = frame.assign(name=_with_prefix(name, domain == NCCL_DOMAIN), domain=domain)
    return named.assign(payload=text_values(rows, "binaryData")).reset_index(drop=True)


def _is_nccls_own(process: np.ndarray, domain: np.ndarray, name: pd.Categorical) -> np.ndarray:
    """Ranges of a domain without a name that holds nothing but NCCL's functions, written without their prefix."""
    is_bare = np.append([bool(_BARE_NCCL.match(text)) for text in name.categories], values=False).astype(bool)[
        name.codes
    ]
    keys = pd.MultiIndex.from_arrays([process, domain]).to_flat_index()
    every = pd.Series(is_bare).groupby(keys).transform("all").to_numpy(dtype=bool)
    own: np.ndarray = every & (domain != 0)
    return own


def _with_prefix(name: pd.Categorical, is_nccl: np.ndarray) -> pd.Categorical:
    """NCCL's functions as they are called: `AllReduce` of its domain is `ncclAllReduce`."""
    bare = np.append([bool(_BARE_NCCL.match(text)) for text in name.categories], values=False).astype(bool)
    held = is_nccl & bare[name.codes]
    if not held.any():
        return name
    texts = pd.Series(name).astype("object")
    return pd.Categorical(texts.where(~held, "nccl" + texts).astype("str"))


def _is_nccl(name: str) -> bool:
    # PyTorch's own "nccl:all_reduce" is not one of them.
    return name.startswith("nccl") and name[4:5].isupper()


def _domains(process: np.ndarray, ids: np.ndarray, names: dict[tuple[int, int], str]) -> pd.Categorical:
    codes, keys = pd.factorize(pd.MultiIndex.from_arrays([process, ids]))
    return category(codes, [names.get((int(owner), int(one))) for owner, one in keys])


def _operators(frame: pd.DataFrame, codes: np.ndarray, parsed: _Parsed) -> pd.DataFrame:
    """Operators; those that autograd runs carry the thread of the forward operator of the same sequence."""
    operators = frame.assign(
        name=category(parsed.name[codes], parsed.names),
        sequence=parsed.sequence[codes],
        shapes=category(parsed.shape[codes], parsed.shapes),
    )
    return operators.assign(forward_thread=_forward_threads(operators, parsed.is_autograd[codes])).reset_index(
        drop=True
    )


def _forward_threads(operators: pd.DataFrame, is_autograd: np.ndarray) -> pd.api.extensions.ExtensionArray:
    keys = ["process", "sequence"]
    forward = operators[~is_autograd & operators["sequence"].notna().to_numpy()]
    first = forward.sort_values("start_ns").drop_duplicates(keys)[[*keys, "thread"]]
    found = operators[keys].merge(first, on=keys, how="left")["thread"].astype("Int64")
    # The engine's own ranges have no sequence number: they get the thread that ran most forward operators.
    usual = first.groupby("process")["thread"].agg(lambda threads: threads.mode().iloc[0])
    found = found.fillna(operators["process"].map(usual).astype("Int64").reset_index(drop=True))
    return found.where(is_autograd, pd.NA).array
