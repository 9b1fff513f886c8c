"""The NVTX ranges of all processes of an export: the user's, the libraries' and PyTorch's operators."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.meaning.rows import LATEST_NS
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.nsys.source import Number, Source, frame_of, labelled, maybe
from traceanalyzer.readers.nsys.tables import process_of, thread_of

NVTX = "NVTX_EVENTS"
NCCL_DOMAIN = "NCCL"

_BARE_NCCL = re.compile(
    r"(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Gather|Scatter|AlltoAll|AllToAll|Send|Recv"
    r"|Group(?:Start|End)|Comm(?:Init|Split|Destroy|Finalize|Abort)\w*)$"
)
_RANGES = (Number.PUSH_POP, Number.START_END, Number.TEXT_PUSH_POP, Number.TEXT_START_END)

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
        containing: of a database, only ranges whose name contains one of these, in any case; all when empty.
    """
    rows = source.read(
        NVTX,
        ints=("start", "end", "eventType", "globalTid", "textId", "domainId"),
        texts=("text",),
        blobs=("binaryData",),
        containing=containing,
    )
    domains = _domain_names(source, rows)
    kept = np.isin(rows["eventType"].fill_null(NONE), _RANGES) & pc.is_valid(rows["start"]).to_numpy()
    rows = rows.filter(pa.array(kept))
    codes, texts = _names(source, rows)
    parsed = _parsed(texts)
    is_operator = parsed["is_operator"].to_numpy()[codes]
    # Texts and payloads of all rows would take longer than the rest.
    numbers = frame_of(rows.drop_columns(["text", "binaryData"]), {"globalTid": 0, "end": UNKNOWN_NS, "domainId": 0})
    frame = _times(numbers, codes, parsed["name"])
    payload = frame_of(rows.select(["binaryData"]).filter(pa.array(~is_operator)))["binaryData"]
    return Nvtx(
        ranges=_ranges(
            frame[~is_operator].assign(payload=payload.to_numpy()), parsed.iloc[codes[~is_operator]], domains
        ),
        operators=_operators(frame[is_operator], parsed.iloc[codes[is_operator]]),
        open_ranges=rows["end"].null_count,
    )


def _domain_names(source: Source, rows: pa.Table) -> dict[tuple[int, int], str]:
    """Name of each (process, domain); the rows that name them may be missing."""
    created = rows.filter(pc.equal(rows["eventType"], int(Number.DOMAIN_CREATED)))
    codes, texts = _names(source, created)
    places = frame_of(created, {"globalTid": 0, "domainId": 0})
    keys = zip(process_of(places["globalTid"]).tolist(), places["domainId"].tolist(), strict=True)
    return {key: name for key, name in zip(keys, texts.take(codes).to_pylist(), strict=True) if key[1]}


def _names(source: Source, rows: pa.Table) -> tuple[np.ndarray, pa.Array]:
    """Each row's text as a position in the distinct texts: its own, else the registered string."""
    own = rows["text"].combine_chunks().cast(pa.large_string()).fill_null("").dictionary_encode()
    codes = own.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    is_registered = pc.equal(own.dictionary, "").to_numpy(zero_copy_only=False)[codes]
    ids = rows["textId"].fill_null(NONE).to_numpy()[is_registered]
    name_of = source.names(ids, "(range without a name)")
    id_codes, distinct = pd.factorize(ids)
    codes[is_registered] = id_codes + len(own.dictionary)
    registered = pa.array([name_of(one) for one in distinct.tolist()], pa.large_string())
    return codes, pa.concat_arrays([own.dictionary, registered])


def _times(rows: pd.DataFrame, codes: np.ndarray, names: pd.Series) -> pd.DataFrame:
    """The rows with process, times and thread; of those without an end it is the start of the next range.

    The next one on their thread of that name, numbers apart: a program that never closes its steps marks where they
    begin. The last of them is open: its end is that of the capture's last range.
    """
    start, ends, thread = (rows[name].to_numpy() for name in ("start", "end", "globalTid"))
    has_no_end = is_open = ends == UNKNOWN_NS
    if has_no_end.any():
        last = max(int(times.max(initial=0, where=times <= LATEST_NS)) for times in (ends, start))
        kinds = pd.factorize(names.astype("object").str.replace(_NUMBER, "#", regex=True))[0]
        of_name = rows.assign(kind=kinds[codes]).sort_values("start", kind="stable").groupby(["globalTid", "kind"])
        following = of_name["start"].shift(-1).reindex(rows.index)
        is_open = has_no_end & following.isna().to_numpy()
        ends = np.where(has_no_end, following.fillna(last).astype("int64"), ends)
    return rows.assign(
        process=process_of(thread), start_ns=start, end_ns=ends, is_open=is_open, thread=thread_of(thread)
    )


def _parsed(texts: pa.Array) -> pd.DataFrame:
    """What each distinct text says, without PyTorch's additions, and whether it is an operator of PyTorch's."""
    fields = pc.extract_regex(texts, _EMITTED)
    name, sequence, op, sizes = (pc.struct_field(fields, part) for part in ("name", "seq", "op", "sizes"))
    has_sequence = pc.not_equal(sequence, "")
    emitted = pc.or_(pc.not_equal(op, ""), has_sequence)
    bare = pc.is_in(name, value_set=pa.array(_BARE_OPERATORS, pa.large_string()))
    operator = pc.or_(pc.or_(has_sequence, pc.match_substring(name, "::")), bare)
    numbers = pc.if_else(has_sequence, sequence, "-1").cast(pa.int64())
    shapes = pc.replace_substring(sizes, " ", "")
    return pd.DataFrame(
        {
            "name": _category(name),
            "sequence": maybe(numbers.to_numpy()),
            "shapes": _category(pc.if_else(pc.equal(shapes, ""), None, shapes)),
            "is_operator": pc.and_(emitted, operator).to_numpy(zero_copy_only=False),
            "is_autograd": pc.match_substring_regex(name, _AUTOGRAD).to_numpy(zero_copy_only=False),
        }
    )


def _category(texts: pa.Array) -> pd.Categorical:
    coded = texts.dictionary_encode()
    codes = coded.indices.fill_null(NONE).to_numpy()
    return pd.Categorical.from_codes(codes, categories=pd.Index(coded.dictionary.to_pylist(), dtype="str"))


def _ranges(frame: pd.DataFrame, parsed: pd.DataFrame, domains: dict[tuple[int, int], str]) -> pd.DataFrame:
    name = parsed["name"].cat.remove_unused_categories().array
    places = pd.MultiIndex.from_frame(frame[["process", "domainId"]])
    domain = labelled(places, domains.get)
    # The row that names NCCL's domain may be missing; NCCL's functions are known by their names.
    is_nccl, is_bare = (
        np.array([bool(test(text)) for text in name.categories], dtype=bool)[name.codes]
        for test in (_is_nccl, _BARE_NCCL.match)
    )
    # So is a domain that holds nothing else, written without their prefix.
    is_nccl |= pd.Series(is_bare).groupby(places.to_flat_index()).transform("all").to_numpy(dtype=bool) & (
        frame["domainId"] != 0
    )
    if NCCL_DOMAIN not in domain.categories:
        domain = domain.add_categories([NCCL_DOMAIN])
    domain[domain.isna() & is_nccl] = NCCL_DOMAIN
    # Functions as they are called: `AllReduce` of NCCL's domain is `ncclAllReduce`.
    held = (domain == NCCL_DOMAIN) & is_bare
    if held.any():
        texts = pd.Series(name).astype("object")
        name = pd.Categorical(texts.where(~held, "nccl" + texts).astype("str"))
    columns = ["process", "start_ns", "end_ns", "is_open", "thread", "payload"]
    return frame[columns].assign(name=name, domain=domain).reset_index(drop=True)


def _is_nccl(name: str) -> bool:
    # PyTorch's own "nccl:all_reduce" is not one of them.
    return name.startswith("nccl") and name[4:5].isupper()


def _operators(frame: pd.DataFrame, parsed: pd.DataFrame) -> pd.DataFrame:
    """Operators; those that autograd runs carry the thread of the forward operator of the same sequence."""
    columns = ["process", "start_ns", "end_ns", "is_open", "thread"]
    texts = {name: parsed[name].cat.remove_unused_categories().array for name in ("name", "shapes")}
    operators = frame[columns].assign(sequence=parsed["sequence"].array, **texts).reset_index(drop=True)
    is_autograd = parsed["is_autograd"].to_numpy()
    keys = ["process", "sequence"]
    forward = operators[~is_autograd & operators["sequence"].notna()]
    first = forward.sort_values("start_ns").drop_duplicates(keys)[[*keys, "thread"]]
    found = operators[keys].merge(first, on=keys, how="left")["thread"].astype("Int64")
    # The engine's own ranges have no sequence number: they get the thread that ran most forward operators.
    usual = first.groupby("process")["thread"].agg(lambda threads: threads.mode().iloc[0])
    found = found.fillna(operators["process"].map(usual).astype("Int64"))
    return operators.assign(forward_thread=found.where(is_autograd, pd.NA))
