"""The NVTX ranges of an export, of all processes: the user's, PyTorch's operators, NCCL's calls with payloads."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.kinds import POINT_TO_POINT, collective
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
        ranges: columns of `model.RANGES`, `process`, and `payload` (hexadecimal or JSON, "" without one).
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
        texts=("text", "jsonText"),
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
    numbers = frame_of(
        rows.drop_columns(["text", "jsonText", "binaryData"]), {"globalTid": 0, "end": UNKNOWN_NS, "domainId": 0}
    )
    frame = _times(numbers, codes, parsed["name"])
    payload = _payloads(rows.filter(pa.array(~is_operator)))
    return Nvtx(
        ranges=_ranges(frame[~is_operator].assign(payload=payload), parsed.iloc[codes[~is_operator]], domains),
        operators=_operators(frame[is_operator], parsed.iloc[codes[is_operator]]),
        open_ranges=rows["end"].null_count,
    )


def _payloads(rows: pa.Table) -> np.ndarray:
    """Each row's payload: its bytes, which `nsys export --include-blobs=true` keeps, else the export's JSON of it."""
    texts = frame_of(rows.select(["binaryData", "jsonText"]))
    return texts["binaryData"].where(texts["binaryData"] != "", texts["jsonText"]).to_numpy()


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


# All-to-alls that are written as sends to and receives from every rank of a communicator, between NCCL's group calls.
#
# PyTorch does so where sizes differ from rank to rank. One kernel carries all of a group's messages.


_START, _END = "ncclGroupStart", "ncclGroupEnd"


def brackets(own: pd.DataFrame) -> pd.DataFrame:
    """The outermost pair of group calls around each of NCCL's ranges: `bracket` (-1 in none), its start and its end.

    Args:
        own: NCCL's ranges, of all processes and threads.
    """
    order = own.sort_values(["process", "thread", "start_ns"], kind="stable")
    name = order["name"].astype(str)
    step = (name == _START).astype(int) - (name == _END).astype(int)
    thread = [order["process"], order["thread"]]
    depth = step.groupby(thread).cumsum()
    opens = (name == _START) & (depth == 1)
    number = opens.cumsum() - 1
    # The end of a pair stands at the depth of what follows it.
    is_inside = (depth > 0) | ((name == _END) & (depth == 0))
    found = pd.DataFrame({"bracket": number.where(is_inside, -1)})
    spans = order.groupby(found["bracket"]).agg(bracket_start_ns=("start_ns", "min"), bracket_end_ns=("end_ns", "max"))
    return found.join(spans, on="bracket").reindex(own.index)


def with_all_to_alls(calls: pd.DataFrame, around: pd.DataFrame) -> pd.DataFrame:
    """The calls, with one all-to-all in place of the messages of a group call that reaches every rank both ways.

    Its splits are bytes: to and from each rank, in order. Of a communicator of unknown size, every rank is one more
    than the largest peer of all of the process's messages, where the rank's message to itself is among them.

    Args:
        calls: of all processes.
        around: rows of `brackets` for them.
    """
    is_message = calls["collective"].isin(("send", "recv")) & (around["bracket"].to_numpy() >= 0)
    is_message &= calls["peer"].notna() & calls["message_bytes"].notna() & calls["group"].notna()
    held = calls[is_message.to_numpy(dtype=bool)]
    if held.empty:
        return calls
    largest = held.groupby(["process", "group"], observed=True)["peer"].max()
    rows, firsts, made = [], [], []
    bracket = around["bracket"].to_numpy()[held.index]
    for (process, group, _), own in held.groupby(["process", "group", bracket], observed=True):
        ways = [own[own["collective"] == way].set_index("peer")["message_bytes"] for way in ("send", "recv")]
        ranks = range(_size(own, int(largest[process, group]) + 1))
        if all(_reaches(way, ranks, own["group_size"].iloc[0]) for way in ways):
            sent, received = (way.reindex(ranks, fill_value=0).astype("int64").tolist() for way in ways)
            span = around.iloc[own.index[0]]
            rows += own.index.tolist()
            firsts.append(own.index[0])
            made.append(
                own.iloc[0].to_dict()
                | {
                    "start_ns": int(span["bracket_start_ns"]),
                    "end_ns": int(span["bracket_end_ns"]),
                    "collective": "all_to_all",
                    "group_size": len(ranks),
                    "peer": pd.NA,
                    "in_split": ",".join(map(str, sent)),
                    "out_split": ",".join(map(str, received)),
                    "size_bytes": sum(sent),
                    "message_bytes": pd.NA,
                }
            )
    if not made:
        return calls
    kept = calls.drop(index=rows)
    added = pd.DataFrame(made, index=firsts)
    both = pd.concat([kept.astype({"collective": "object"}), added.astype(_types(kept))])
    return both.sort_index(ignore_index=True).astype({"collective": "category"})


def _types(calls: pd.DataFrame) -> dict[str, object]:
    return {name: "object" if name == "collective" else calls[name].dtype for name in calls.columns}


def _size(own: pd.DataFrame, seen: int) -> int:
    size = own["group_size"].iloc[0]
    return seen if pd.isna(size) else int(size)


def _reaches(way: pd.Series, ranks: range, group_size: object) -> bool:
    """Whether messages of one way reach every rank once; all but its own where the group's size is known."""
    missing = len(ranks) - len(way)
    is_each_once = way.index.is_unique and all(peer in ranks for peer in way.index.tolist())
    return (
        is_each_once
        and len(ranks) > 1
        and (missing == 0 or (missing == 1 and len(way) > 1 and not pd.isna(group_size)))
    )


# What NVTX payloads say: bytes laid out by the export's own schema tables, or JSON → a column for each field.


ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
ENUMS = "NVTX_PAYLOAD_ENUMS"
ENUM_ENTRIES = "NVTX_PAYLOAD_ENUM_ENTRIES"
PAYLOAD_TABLES = (ENTRIES, ENUMS, ENUM_ENTRIES)

# Before the payload stand four little-endian 64-bit numbers: domain, schema, payload size, size of it all.
_HEADER_BYTES = 32

# NVTX_PAYLOAD_ENTRY_TYPE_*: whole numbers only, as NCCL uses no other.
_TYPES = {
    3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8", 10: "<u8", 11: "<i1", 12: "<u1",
    13: "<i2", 14: "<u2", 15: "<i4", 16: "<u4", 17: "<i8", 18: "<u8", 22: "<u8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    offset: int
    dtype: np.dtype
    enum: int | None


def decode(source: Source, payloads: Sequence[str]) -> pd.DataFrame:
    """One row for each payload (hexadecimal or JSON), one Int64 column for each field name; NA where it has none.

    An enumeration's field is text: the value's name. A payload that is empty, cut or of an unknown schema is
    a row of NA.
    """
    schemas, names = _schemas(source), _enum_names(source)
    raw = [_bytes(text) for text in payloads]
    schema_of = np.array([int.from_bytes(one[8:16], "little") if len(one) > _HEADER_BYTES else -1 for one in raw])
    decoded = pd.DataFrame(index=pd.RangeIndex(len(raw)))
    for schema, fields in schemas.items():
        size = _HEADER_BYTES + max(field.offset + field.dtype.itemsize for field in fields)
        rows = [row for row in np.flatnonzero(schema_of == schema).tolist() if len(raw[row]) >= size]
        if rows:
            block = np.frombuffer(b"".join(raw[row][:size] for row in rows), np.uint8).reshape(len(rows), size)
            decoded = _with_fields(decoded, rows, block, fields, names)
    return _with_json(decoded, payloads)


def _with_fields(
    decoded: pd.DataFrame,
    rows: list[int],
    block: np.ndarray,
    fields: list[_Field],
    names: dict[int, dict[int, str]],
) -> pd.DataFrame:
    for field in fields:
        first = _HEADER_BYTES + field.offset
        values = np.ascontiguousarray(block[:, first : first + field.dtype.itemsize]).view(field.dtype).ravel()
        if field.enum is None:
            # A communicator's id uses all 64 bits: keep them, as a signed number.
            column = pd.Series(values.astype(np.int64), index=rows).astype("Int64")
        else:
            column = pd.Series(values, index=rows).map(names.get(field.enum, {})).astype("str")
        decoded = _with_column(decoded, field.name, column)
    return decoded


def _with_column(decoded: pd.DataFrame, name: str, column: pd.Series) -> pd.DataFrame:
    held = decoded.get(name)
    column = column.reindex(decoded.index)
    if held is not None and held.dtype != column.dtype:  # a number in some payloads, a text in others
        held, column = held.astype("str"), column.astype("str")
    return decoded.assign(**{name: column if held is None else held.where(column.isna(), column)})


def _with_json(decoded: pd.DataFrame, payloads: Sequence[str]) -> pd.DataFrame:
    """The rows with the fields of payloads that are JSON objects; an enumeration's value is its name."""
    objects = {text: _object(text) for text in set(payloads) if text.startswith("{")}
    rows = [row for row, text in enumerate(payloads) if text in objects]
    for name in sorted({name for fields in objects.values() for name in fields}):
        values = [objects[payloads[row]].get(name) for row in rows]
        is_text = any(isinstance(value, str) for value in values)
        column = pd.Series(values, index=rows, dtype="object").astype("str" if is_text else "Int64")
        decoded = _with_column(decoded, name, column)
    return decoded


def _object(text: str) -> dict[str, int | str]:
    """The texts and whole numbers of 64 bits of a JSON object; unsigned ones as the signed number of the same bits."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    whole = {name: value for name, value in fields.items() if type(value) is int and -(2**63) <= value < 2**64}
    signed = {name: value - 2**64 if value >= 2**63 else value for name, value in whole.items()}
    return signed | {name: value for name, value in fields.items() if isinstance(value, str)}


def _schemas(source: Source) -> dict[int, list[_Field]]:
    """Fields of each schema id; the same ids of several processes lay out the same."""
    sizes = dict(source.rows(ENUMS, {"size": 4}, ints=("schemaId", "size")))
    table = source.frame(ENTRIES, {"idx": 0}, ints=("schemaId", "idx", "type", "offset"), texts=("name",))
    table = table.drop_duplicates(["schemaId", "idx"]).sort_values(["schemaId", "idx"])
    return {
        int(schema): fields for schema, group in table.groupby("schemaId") if (fields := _payloads_fields(group, sizes))
    }


def _payloads_fields(group: pd.DataFrame, enum_sizes: dict[int, int]) -> list[_Field]:
    fields, end = [], 0
    for row in group.itertuples(index=False):
        size = enum_sizes.get(row.type)
        kind = _TYPES.get(row.type) or (f"<u{size}" if size in (1, 2, 4, 8) else None)
        if kind is None:
            break  # what follows has no known place
        dtype = np.dtype(kind)
        # No offset means: the next place that suits the type.
        offset = row.offset if row.offset >= 0 else -(-end // dtype.itemsize) * dtype.itemsize
        end = offset + dtype.itemsize
        fields.append(_Field(row.name, offset, dtype, row.type if row.type in enum_sizes else None))
    return fields


def _enum_names(source: Source) -> dict[int, dict[int, str]]:
    names: dict[int, dict[int, str]] = {}
    # The export leaves a value of 0 out.
    for schema, value, name in source.rows(ENUM_ENTRIES, {"value": 0}, ints=("schemaId", "value"), texts=("name",)):
        names.setdefault(schema, {})[value] = name
    return names


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


# Which rank a process is and which ranks each communicator joins, where the program itself wrote it into the capture.
#
# A program writes NVTX ranges for that, in any domain and of any length: `rank 3 of 8`, and around one collective of
# each process group `group 5 of ranks 1,3,5,7` or `group 5 of ranks 1,3,5,7: mesh_tp`. The collective's payload tells
# the group's communicator. The runners do so at the start of what Nsight Systems records.


RANK = re.compile(r"\W*(?:global[ _])?rank\W{0,3}_?(\d{1,6})(?: of (\d{1,6}))?\W*", re.IGNORECASE)
"""The rank, and how many there are."""

_GROUP = re.compile(r"group (\S{1,200}) of ranks (\d{1,9}(?:,\d{1,9})*)(?:: (.*))?")

COLUMNS = ("process", "device", "communicator", "rank", "ranks", "group_ranks", "description")
"""`communicator` is the group's own name where no payload tells it; `group_ranks` text such as `1,3,5,7`."""


def rank_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """`rank` and `ranks` (NA where not named) of each process that says one rank only, by process."""
    named = _matching(ranges, RANK)
    numbers = named.assign(
        rank=[int(match[1]) for match in named["match"]],
        ranks=pd.array([match[2] and int(match[2]) for match in named["match"]], "Int64"),
    )
    each = numbers.groupby("process")[["rank", "ranks"]].agg(["nunique", "first"])
    each = each[each[("rank", "nunique")] == 1]
    return pd.DataFrame({"rank": each[("rank", "first")], "ranks": each[("ranks", "first")]})


def introduced(ranges: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """One row for each process and group that the program names (`COLUMNS`).

    Args:
        ranges: all NVTX ranges.
        calls: NCCL's, with `process`, `thread`, `start_ns` and `communicator` (text; NA without a payload).
    """
    named, numbers = _matching(ranges, _GROUP), rank_ranges(ranges)["rank"]
    rows = []
    for one in named.itertuples(index=False):
        ranks = tuple(map(int, one.match[2].split(",")))
        own = numbers.get(one.process)
        if own in ranks:
            communicator = _communicator(one, calls)
            rows.append((one.process, pd.NA, communicator or one.match[1], ranks.index(own), len(ranks), one.match[2],
                         one.match[3] or ""))  # fmt: skip
    types = {"process": "int64", "device": "Int64", "communicator": "str", "rank": "Int64", "ranks": "Int64"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(types)


def _communicator(one: object, calls: pd.DataFrame) -> str | None:
    """That of the call inside a group's range."""
    starts = calls["start_ns"].to_numpy()
    is_inside = (starts >= one.start_ns) & (starts < one.end_ns)  # type: ignore[attr-defined]  # a row
    is_own = (calls["process"] == one.process) & (calls["thread"] == one.thread)  # type: ignore[attr-defined]
    found = calls.loc[np.asarray(is_inside & is_own), "communicator"].dropna().unique()
    return str(found[0]) if len(found) == 1 else None


def _matching(ranges: pd.DataFrame, pattern: re.Pattern[str]) -> pd.DataFrame:
    """Ranges whose name is all pattern, with the `match`."""
    if not len(ranges):
        return ranges.assign(match=[])
    matches = {name: pattern.fullmatch(str(name)) for name in ranges["name"].cat.categories}
    names = [name for name, match in matches.items() if match]
    own = ranges[ranges["name"].isin(names).to_numpy()]
    return own.assign(match=[matches[name] for name in own["name"]])


# What NCCL's own ranges say of its calls: operation; with payloads bytes, communicator, rank, world size.


_FIELDS = {
    "communicator": re.compile(r"communicator", re.IGNORECASE),
    "message_bytes": re.compile(r"message size|\[bytes\]", re.IGNORECASE),
    "ranks": re.compile(r"(no\.|number) of ranks", re.IGNORECASE),
    "rank": re.compile(r"^rank$", re.IGNORECASE),
    "device": re.compile(r"cuda device", re.IGNORECASE),
    "peer": re.compile(r"peer", re.IGNORECASE),
    "root": re.compile(r"root", re.IGNORECASE),
    "reduction": re.compile(r"reduction", re.IGNORECASE),
}
"""Our name → what NCCL's versions call the payload's field."""

# NCCL states one rank's message; the size of these is the full array, so times the ranks.
_TIMES_RANKS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's host calls of all processes.

    Attributes:
        calls: columns of `model.COMM_ARGS` that NCCL states, and `process`.
        members: who joined what: `process`, `device` (NA when not stated), `communicator` (its name), `rank` in it,
            its `ranks`, and where the program names them `group_ranks` and `description`.
        has_payloads: whether any call's bytes are known.
        inferred: calls whose size and number of ranks are inferred, see `with_inferred_sizes`.
    """

    calls: pd.DataFrame
    members: pd.DataFrame
    has_payloads: bool
    inferred: int = 0


def read_nccl(source: Source, ranges: pd.DataFrame) -> Nccl:
    """Calls among the NVTX ranges of NCCL's domain, with what their payloads say."""
    own = ranges[(ranges["domain"] == NCCL_DOMAIN).to_numpy()].reset_index(drop=True)
    fields = _fields(decode(source, own["payload"].tolist()))
    numbers = fields["communicator"].astype("object")  # pandas 3.0 maps whole numbers as floats where some are absent
    fields["communicator"] = numbers.map(lambda one: f"0x{one & 0xFFFF_FFFF_FFFF_FFFF:x}", na_action="ignore").astype(
        "object"
    )
    program_groups = introduced(
        ranges, own[["process", "thread", "start_ns"]].assign(communicator=fields["communicator"])
    )
    members = pd.concat(
        [part for part in (_members(own, fields), program_groups) if len(part)] or [program_groups], ignore_index=True
    )
    fields["communicator"] = fields["communicator"].fillna(own["process"].map(_only_group(program_groups)))
    names = own["name"].astype(str)
    operations = names.map({name: collective(name) for name in names.unique()})
    is_call = operations.notna().to_numpy()
    calls = _calls(own[is_call], operations[is_call], fields[is_call], members)
    calls = with_all_to_alls(calls, brackets(own)[is_call].reset_index(drop=True))
    return Nccl(calls, members, bool(fields["message_bytes"].notna().any()))


def _fields(decoded: pd.DataFrame) -> pd.DataFrame:
    found = {}
    for ours, pattern in _FIELDS.items():
        column = pd.Series(pd.NA, index=decoded.index, dtype="str" if ours == "reduction" else "Int64")
        for name in decoded.columns:
            if pattern.search(str(name)) and decoded[name].dtype == column.dtype:
                column = column.fillna(decoded[name])
        found[ours] = column
    return pd.DataFrame(found)


def _members(own: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """Rows of ncclCommInit*, which alone state rank and number of ranks."""
    joined = fields[["communicator", "rank", "ranks", "device"]].assign(process=own["process"])
    joined = joined[joined["rank"].notna() & joined["ranks"].notna() & joined["communicator"].notna()]
    joined = joined.drop_duplicates(["process", "device", "communicator"], keep="last").reset_index(drop=True)
    return joined.assign(group_ranks=None, description="")


def _only_group(groups: pd.DataFrame) -> pd.Series:
    """The group of every call of a process whose program names one group only, by process."""
    names = groups.groupby("process")["communicator"].agg(["nunique", "first"])
    return names.loc[names["nunique"] == 1, "first"]


def _calls(own: pd.DataFrame, operations: pd.Series, fields: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    # What the program says of a communicator comes after what NCCL says, and says more.
    known = members.drop_duplicates("communicator", keep="last").set_index("communicator")
    group_size = fields["communicator"].map(known["ranks"]).astype("Int64")
    is_part = operations.isin(_TIMES_RANKS)
    size = fields["message_bytes"].where(~is_part, fields["message_bytes"] * group_size)
    return pd.DataFrame(
        {
            "process": own["process"],
            "gpu_op": np.full(len(own), -1),
            "start_ns": own["start_ns"],
            "end_ns": own["end_ns"],
            "thread": own["thread"],
            "collective": operations.astype("category"),
            "group": fields["communicator"].astype("category"),
            "group_description": fields["communicator"].map(known["description"]).replace("", pd.NA).astype("category"),
            "group_ranks": fields["communicator"].map(known["group_ranks"]).astype("category"),
            "group_size": group_size,
            "reduction": fields["reduction"].str.lower().astype("category"),
            "root": fields["root"],
            "peer": fields["peer"],
            "size_bytes": size,
            "message_bytes": fields["message_bytes"],
            "has_inferred_size": False,
        }
    ).reset_index(drop=True)


def with_inferred_sizes(nccl: Nccl) -> Nccl:
    """Communicators of unknown size have as many ranks as there are processes whose calls name them.

    For exports that may hold the whole job: of a communicator that reaches beyond it the sizes would be too small.
    """
    calls = nccl.calls
    shared = calls.groupby("group", observed=True)["process"].nunique()
    ranks = calls["group"].map(shared.where(shared > 1)).astype("Int64")
    is_bare = calls["group_size"].isna() & ranks.notna() & ~calls["collective"].isin(POINT_TO_POINT)
    if not is_bare.any():
        return nccl
    is_part = is_bare & calls["collective"].isin(_TIMES_RANKS)
    size = calls["size_bytes"].fillna((calls["message_bytes"] * ranks).where(is_part))
    is_inferred = is_part & size.notna()
    completed = calls.assign(
        group_size=calls["group_size"].mask(is_bare, ranks), size_bytes=size, has_inferred_size=is_inferred
    )
    return replace(nccl, calls=completed, inferred=int(is_inferred.sum()))


def with_only_peers(calls: pd.DataFrame, rank_of: Mapping[int, int]) -> pd.DataFrame:
    """Sends and receives of unknown peers, where two processes are all that there is: the other one is the peer.

    Args:
        calls: of all processes.
        rank_of: the global rank of each process of the export.

    It is not, where the two do not receive as much as the other sends: then they have peers outside the export.
    """
    is_bare = calls["peer"].isna() & calls["collective"].isin(("send", "recv"))
    if len(rank_of) != 2 or not is_bare.any():
        return calls
    own = calls[is_bare]
    counts = own.groupby(["process", "collective"], observed=True).size()
    one, two = rank_of
    if any(counts.get((a, "send"), 0) != counts.get((b, "recv"), 0) for a, b in ((one, two), (two, one))):
        return calls
    others = {one: rank_of[two], two: rank_of[one]}
    ranks = ",".join(map(str, sorted(rank_of.values())))
    # Peers are numbered within their group, and so are those of the group of both; of another it is not known.
    is_certain = is_bare & (calls["group"].isna() | (calls["group_ranks"] == ranks))
    places = {process: sorted(rank_of.values()).index(rank) for process, rank in others.items()}
    peers = calls["process"].map(others).where(calls["group"].isna(), calls["process"].map(places))
    return calls.assign(peer=calls["peer"].mask(is_certain, peers.astype("Int64")))
