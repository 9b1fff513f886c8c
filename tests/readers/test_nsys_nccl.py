"""NCCL's payloads: bytes, communicator, rank and world size, and which rank that makes each process."""

import struct

import pytest

from tests.nsys_builders import call, export, gid, kernel, nvtx, payload, read_all, write_sqlite
from traceanalyzer.readers import nsys

ALL_REDUCE, ALL_GATHER, INIT, SEND = 16777221, 16777220, 16777227, 16777240
REDUCTION = 16777236
WORLD, PAIR = 0xF00D_0000_0000_0001, 0xBEEF


def entry(schema, idx, kind, name, offset):
    return {"domainId": 1, "schemaId": schema, "idx": idx, "flags": None, "type": kind, "name": name, "offset": offset}


# As in a real export: an offset of 0 and an enumeration's value of 0 are left out.
SCHEMAS = {
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
        entry(ALL_REDUCE, 0, 18, "NCCL communicator ID", None),
        entry(ALL_REDUCE, 1, 22, "Message size [bytes]", 8),
        entry(ALL_REDUCE, 2, REDUCTION, "Reduction operation", 16),
        entry(ALL_GATHER, 0, 18, "NCCL communicator ID", None),
        entry(ALL_GATHER, 1, 22, "Message size [bytes]", 8),
        entry(INIT, 0, 18, "NCCL communicator ID", None),
        entry(INIT, 1, 5, "No. of ranks", 8),
        entry(INIT, 2, 5, "Rank", 12),
        entry(INIT, 3, 5, "CUDA device", 16),
        entry(SEND, 0, 18, "NCCL communicator ID", None),
        entry(SEND, 1, 22, "Message size [bytes]", None),
        entry(SEND, 2, 5, "Peer rank", None),
    ],
    "NVTX_PAYLOAD_ENUMS": [{"domainId": 1, "schemaId": REDUCTION, "name": None, "numEntries": 2, "size": 4}],
    "NVTX_PAYLOAD_ENUM_ENTRIES": [
        {"domainId": 1, "schemaId": REDUCTION, "idx": 0, "name": "Sum", "value": None},
        {"domainId": 1, "schemaId": REDUCTION, "idx": 1, "name": "Product", "value": 1},
    ],
}


def init(process, rank, ranks=2, communicator=WORLD, device=0):
    body = struct.pack("<Qiiixxxx", communicator, ranks, rank, device)
    return nvtx(-900, -800, "ncclCommInitRankConfig", process=process, domain=1, data=payload(INIT, body))


def all_reduce(size, process=100, communicator=WORLD):
    body = struct.pack("<QQIxxxx", communicator, size, 0)
    return nvtx(148, 158, "ncclAllReduce", process=process, domain=1, data=payload(ALL_REDUCE, body))


def all_gather(size, process=100, communicator=WORLD):
    body = struct.pack("<QQ", communicator, size)
    return nvtx(160, 170, "ncclAllGather", process=process, domain=1, data=payload(ALL_GATHER, body))


def two_processes(*events):
    return export() | SCHEMAS | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200, process=100), kernel(100, 200, process=200)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [], "CUPTI_ACTIVITY_KIND_MEMSET": [],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(90, 95, process=100), call(90, 95, process=200)],
        "NVTX_EVENTS": list(events),
    }  # fmt: skip


def plain(frame, *columns):
    values = frame[list(columns)].astype(object)
    return list(values.where(values.notna(), None).itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("other", "expected", "is_said"),
    [
        (all_gather(1000, process=200), [("all_reduce", None, 1 << 20), ("all_gather", 2, 2000)], True),
        # Nobody else in the report calls that communicator: its other ranks are elsewhere.
        (all_gather(1000, process=200, communicator=PAIR), [("all_reduce", None, 1 << 20), ("all_gather", None, None)], False),
    ],
)  # fmt: skip
def test_sizes_are_inferred_where_the_making_of_communicators_lies_outside(tmp_path, other, expected, is_said):
    tables = two_processes(all_reduce(1 << 20, communicator=0xABC), all_gather(1000), other)
    first = read_all(write_sqlite(tmp_path / "r.sqlite", tables))[0]
    assert plain(first.comm_args, "collective", "group_size", "size_bytes") == expected
    assert first.comm_args["has_inferred_size"].tolist() == [False, is_said]
    assert any("sizes of 2 of 3 NCCL calls are inferred" in note for note in first.meta.notes) == is_said


def test_bytes_and_communicator(tmp_path):
    tables = two_processes(init(100, 1), init(200, 0), all_reduce(1 << 20), all_gather(1000))
    second = read_all(write_sqlite(tmp_path / "r.sqlite", tables))[1]
    assert plain(second.comm_args, "collective", "group", "group_size", "size_bytes") == [
        ("all_reduce", "0xf00d000000000001", 2, 1 << 20),
        ("all_gather", "0xf00d000000000001", 2, 2000),  # NCCL states one rank's part
    ]
    assert not any("payload" in note for note in second.meta.notes)


def stated(event, text):
    """The event as an export without blobs holds it: its payload as JSON."""
    return {name: value for name, value in event.items() if name != "binaryData"} | {"jsonText": text}


def test_payloads_that_the_export_holds_as_json(tmp_path):
    made = f'{{"NCCL communicator ID":{WORLD},"No. of ranks":2,"Rank":%d,"CUDA device":0}}'
    reduced = f'{{"NCCL communicator ID":{WORLD},"Message size [bytes]":1024,"Reduction operation":"Avg"}}'
    cut = f'{{"NCCL communicator ID":{WORLD},"Mess'
    events = [stated(init(100, 1), made % 1), stated(init(200, 0), made % 0), stated(all_reduce(1), reduced)]
    tables = two_processes(*events, stated(all_gather(1), cut))
    traces = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert [(trace.meta.process, trace.meta.rank_source) for trace in traces] == [
        (200, "NCCL payload"),
        (100, "NCCL payload"),
    ]
    assert plain(traces[1].comm_args, "collective", "group", "group_size", "size_bytes", "reduction") == [
        ("all_reduce", "0xf00d000000000001", 2, 1024, "avg"),
        ("all_gather", None, None, None, None),
    ]


def test_a_field_that_is_a_number_in_bytes_and_a_text_in_json(tmp_path):
    tables = two_processes(
        init(100, 1),
        init(200, 0),
        all_reduce(1 << 20),
        stated(all_gather(1), f'{{"NCCL communicator ID":{WORLD},"Message size [bytes]":"1 kB"}}'),
    )
    second = read_all(write_sqlite(tmp_path / "r.sqlite", tables))[1]
    assert plain(second.comm_args, "collective", "group_size") == [("all_reduce", 2), ("all_gather", 2)]


def test_what_a_collective_reduces_by(tmp_path):
    tables = two_processes(init(100, 1), init(200, 0), all_reduce(1 << 20), all_gather(1000))
    traces = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert plain(traces[1].comm_args, "collective", "reduction") == [("all_reduce", "sum"), ("all_gather", None)]


def test_ranks_come_from_the_largest_communicator(tmp_path):
    pair = [init(100, 0, 1, PAIR), init(200, 0, 1, PAIR + 1)]
    path = write_sqlite(tmp_path / "r.sqlite", two_processes(*pair, init(100, 1), init(200, 0)))
    assert nsys.peek(path).ranks == (0, 1)
    assert nsys.peek(path).world_size == 2
    traces = read_all(path)
    assert [(t.rank, t.meta.process, t.meta.rank_source, t.meta.world_size) for t in traces] == [
        (0, 200, "NCCL payload", 2), (1, 100, "NCCL payload", 2),
    ]  # fmt: skip
    assert ("0xf00d000000000001", (0, 1)) in [(group.name, group.ranks) for group in traces[0].meta.groups]


def test_one_process_with_two_gpus_is_told_by_the_payloads_device(tmp_path):
    tables = two_processes(init(100, 0, device=1), init(100, 1, device=0)) | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200), kernel(100, 200, device=1)]
    }
    traces = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert [(t.rank, t.meta.device) for t in traces] == [(0, 1), (1, 0)]


def introduced(process, rank, *groups):
    """What a program of its own writes: who it is, and its groups, each around a call."""
    events = [nvtx(1, 2, f"rank {rank} of 4", process=process)]
    for place, (ranks, call_of_it) in enumerate(groups):
        start = 10 + 200 * place
        name = f"group {place} of ranks {','.join(map(str, ranks))}: mesh"
        events += [nvtx(start, start + 190, name, process=process), call_of_it | {"start": start + 1, "end": start + 9}]
    return events


@pytest.mark.parametrize("has_payloads", [True, False])
def test_who_a_program_says_that_it_is(tmp_path, has_payloads):
    def call(process, communicator):
        made = all_reduce(4, process, communicator)
        return made if has_payloads else made | {"binaryData": None}

    own = [
        *introduced(100, 3, ((0, 1, 2, 3), call(100, WORLD)), ((1, 3), call(100, PAIR))), all_gather(1000, 100, PAIR),
        *introduced(200, 0, ((0, 1, 2, 3), call(200, WORLD)), ((0, 2), call(200, PAIR + 1))),
    ]  # fmt: skip
    path = write_sqlite(tmp_path / "r.sqlite", two_processes(*own))
    first, second = read_all(path)
    assert nsys.peek(path).ranks == (0, 3)
    assert [(t.rank, t.meta.rank_source, t.meta.world_size) for t in (first, second)] == [
        (0, "NCCL payload", 4), (3, "NCCL payload", 4),
    ]  # fmt: skip
    last = second.comm_args.iloc[-1]
    if has_payloads:
        assert (last["group"], last["group_ranks"], last["group_description"], last["size_bytes"]) == (
            "0xbeef", "1,3", "mesh", 2000,
        )  # fmt: skip
        assert ("0xbeef", "mesh", (1, 3)) in [(g.name, g.description, g.ranks) for g in second.meta.groups]


def message(function, process, start):
    return nvtx(start, start + 5, function, process=process, domain=1)


@pytest.mark.parametrize(
    ("receives", "peers"), [(1, [1, 1]), (2, [None, None])], ids=["each answers the other", "one has other peers"]
)
def test_peers_of_two_processes_without_payloads(tmp_path, receives, peers):
    events = [
        nvtx(0, 0, "NCCL", event=75, domain=1), nvtx(0, 0, "NCCL", event=75, domain=1, process=200),
        message("ncclSend", 100, 10), message("ncclRecv", 100, 20), message("ncclSend", 200, 10),
        *(message("ncclRecv", 200, 20 + 10 * place) for place in range(receives)),
    ]  # fmt: skip
    (first, _) = read_all(write_sqlite(tmp_path / "r.sqlite", two_processes(*events)))
    assert [row[0] for row in plain(first.comm_args, "peer")] == peers


def group_call(peers, *, process=100, at=100, size=4096):
    """Sends of so many bytes to, and receives of twice as many from, each of the peers in one group call."""
    events = [nvtx(at, at + 1, "ncclGroupStart", process=process, domain=1)]
    for place, (function, peer) in enumerate((f, peer) for peer in peers for f in ("ncclSend", "ncclRecv")):
        bytes_ = size * (peer + 1) * (2 if function == "ncclRecv" else 1)
        data = payload(SEND, struct.pack("<QQi", PAIR, bytes_, peer))
        events.append(nvtx(at + 2 * place + 2, at + 2 * place + 3, function, process=process, domain=1, data=data))
    end = at + 4 * len(peers) + 4
    return [*events, nvtx(end, end + 10, "ncclGroupEnd", process=process, domain=1)]


@pytest.mark.parametrize(
    ("peers", "told", "expected"),
    [
        ((0, 1, 2), False, [("all_to_all", "10,20,30", "20,40,60", 60, 3)]),
        ((0, 2), True, [("all_to_all", "10,0,30", "20,0,60", 40, 3)]),  # its own part is copied by itself
        ((0, 2), False, [("send", None, None, 10, None), ("recv", None, None, 20, None)] * 1
         + [("send", None, None, 30, None), ("recv", None, None, 60, None)]),
        ((1,), True, [("send", None, None, 20, 3), ("recv", None, None, 40, 3)]),
    ],
    ids=["to all and itself", "to all others", "neighbours in a ring", "a pipeline's"],
)  # fmt: skip
def test_a_group_call_to_all_ranks_is_an_all_to_all(tmp_path, peers, told, expected):
    own = [init(100, 1, 3, PAIR)] if told else []
    (first, _) = read_all(write_sqlite(tmp_path / "r.sqlite", two_processes(*own, *group_call(peers, size=10))))
    names = ("collective", "in_split", "out_split", "size_bytes", "group_size")
    assert plain(first.comm_args, *names) == expected


@pytest.mark.parametrize("data", [b"", b"\x01" * 20, payload(999, bytes(24)), payload(ALL_REDUCE, bytes(10))])
def test_payloads_that_cannot_be_decoded(tmp_path, data):
    event = nvtx(1, 2, "ncclAllReduce", domain=1, data=data)
    (first, _) = read_all(write_sqlite(tmp_path / "r.sqlite", two_processes(event)))
    assert plain(first.comm_args, "collective", "size_bytes", "group") == [("all_reduce", None, None)]
    assert any("--include-blobs=true" in note for note in first.meta.notes)


def test_mpi_ranks(tmp_path):
    ranks = [{"globalTid": gid(100, 1), "rank": 5}, {"globalTid": gid(200, 1), "rank": 4}]
    traces = read_all(write_sqlite(tmp_path / "r.sqlite", two_processes() | {"MPI_RANKS": ranks}))
    assert [(t.rank, t.meta.process, t.meta.rank_source) for t in traces] == [(4, 200, "MPI"), (5, 100, "MPI")]


@pytest.mark.parametrize(
    "text",
    [
        "RANK 3",
        pytest.param("rank=3", marks=pytest.mark.thorough),
        "[rank 3]",
        "global rank: 3",
        pytest.param("rank_3", marks=pytest.mark.thorough),
    ],
)
def test_a_range_that_names_the_rank(tmp_path, text):
    tables = export()
    tables["NVTX_EVENTS"].append(nvtx(0, 1, text))
    (trace,) = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert (trace.rank, trace.meta.rank_source) == (3, "NVTX range")
