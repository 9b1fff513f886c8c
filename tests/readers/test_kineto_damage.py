"""Kineto files with bad events, bad bytes and bad gzip data: only what is bad is lost."""

import gzip
import json
import random
import time
import warnings
from contextlib import suppress

import pytest

from tests.builders import document, host, kernel, write
from tests.conftest import sampled
from tests.samples import SAMPLES
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto

HUGE = 10**20


def read(path):
    return list(kineto.read(path, RankHint(0, "path"), KindRules()))


def only(path):
    (trace,) = read(path)
    return trace


def text_of(*events, **head):
    return json.dumps(document(events, **head)).encode()


def with_args(**args):
    return kernel(20, 3, name="odd") | {"args": kernel(20, 3)["args"] | args}


@pytest.mark.parametrize(
    ("odd", "kept_ns"),
    [
        (with_args(correlation=HUGE), 3000),
        (with_args(bytes=HUGE), 3000),
        (with_args(bytes=1.5), 3000),
        (with_args(stream=-HUGE), 3000),
        (with_args(device=HUGE), 3000),
        (with_args(grid="1x1"), 3000),
        (with_args(**{"Process Group Ranks": [0, 1], "Collective name": "allreduce"}), 3000),
        (with_args(correlation=None), 3000),
        (kernel(20, 3, name="odd") | {"args": "none"}, 3000),
        (kernel(20, 3, name=None), 3000),
        (kernel(20, 3, name=""), 3000),
        (kernel(20, 3, name="\\ud800"), 3000),
        (kernel(20, None, name="odd"), 0),
        (kernel(20, 1e300, name="odd"), None),
        (kernel(1e16, 3, name="odd"), None),
        (kernel(1e300, 3, name="odd"), None),
        (kernel("NaN", 3, name="odd"), None),
        (kernel(float("inf"), 3, name="odd"), None),
        (kernel(20, 3, name="odd") | {"tid": HUGE}, None),
        (kernel(20, 3, name="odd") | {"tid": f"stream {HUGE}", "args": {}}, 3000),
    ],
)
@pytest.mark.parametrize("others_us", [10, 1_700_000_000_000_000.5])
def test_an_odd_event_keeps_its_time_and_costs_no_other(tmp_path, odd, kept_ns, others_us):
    if others_us > 10 and odd["ts"] == 20:
        odd = odd | {"ts": others_us + 20}
    trace = only(write(tmp_path / "a.json", text_of(kernel(others_us, 1), odd, kernel(others_us + 50, 1))))
    ops = trace.gpu_ops
    durations = (ops["end_ns"] - ops["start_ns"]).tolist()
    assert durations == [1000, *([kept_ns] if kept_ns is not None else []), 1000]
    assert trace.meta.events_skipped == (kept_ns is None)
    assert ops["name"].notna().all()


def test_arguments_nested_without_end_are_left_out(tmp_path):
    deep = b"[" * 100_000 + b"]" * 100_000
    data = text_of(kernel(10, 1), kernel(20, 3, extra="deep"), kernel(30, 1)).replace(b'"deep"', deep)
    assert len(only(write(tmp_path / "a.json", data)).gpu_ops) == 3


@pytest.mark.parametrize("name_first", [False, True])
@pytest.mark.parametrize("unclosed", [b'"odd"', b'"dur": 3, "args": {"a": 1'])
def test_an_unclosed_event_costs_only_itself(tmp_path, name_first, unclosed):
    events = [kernel(10 * n, 1, name="odd" if n == 20 else "gemm") for n in range(50)]
    if name_first:
        events = [{"name": event["name"], **event} for event in events]
    texts = [json.dumps(event).encode() for event in events]
    texts[20] = texts[20][: texts[20].index(b'"odd"')] + unclosed
    data = b'{"traceEvents": [' + b", ".join(texts) + b"]}"
    trace = only(write(tmp_path / "a.json", data))
    assert (len(trace.gpu_ops), trace.meta.events_skipped, trace.meta.is_truncated) == (49, 1, False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace(b'"dur": 1,', b'"dur": Infinity,', 1),
        lambda text: text.replace(b'"grid": [1]', b'"grid": "1x1"'),
        lambda text: text.replace(b"}}", b""),
    ],
    ids=["one bad event", "all odd", "all unclosed"],
)
def test_a_damaged_file_is_not_read_in_quadratic_time(tmp_path, damage):
    def seconds(count):
        events = [{"name": "gemm", **kernel(10 * n, 1, grid=[1])} for n in range(count)]
        path = write(tmp_path / f"{count}.json", damage(text_of(*events)))
        started = time.process_time()
        with suppress(NotATraceError):
            read(path)
        return time.process_time() - started

    few = seconds(2_000)
    # Of a busy machine one time in three is near the truth; what is quadratic takes 64 times as long each time.
    assert any(seconds(16_000) < 24 * few + 0.2 for _ in range(3))


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def packed(count):
    events = [kernel(10 * n, 1, name=f"k{n * 7919 % 1000}") for n in range(count)]
    return gzip.compress(text_of(*events))


def test_a_wrong_checksum_costs_nothing_and_is_said(tmp_path):
    data = packed(100)
    path = tmp_path / "a.json.gz"
    path.write_bytes(flipped(data, len(data) - 6))
    trace = only(path)
    assert (len(trace.gpu_ops), trace.meta.is_truncated) == (100, False)
    assert any("packed data are damaged" in note for note in trace.meta.notes)


@pytest.mark.parametrize("count", [300, 20_000])
def test_damaged_gzip_data_are_kept_up_to_the_damage(tmp_path, count):
    data = packed(count)
    path = tmp_path / "a.json.gz"
    path.write_bytes(flipped(data, len(data) * 9 // 10))
    trace = only(path)
    assert 0.8 * count < len(trace.gpu_ops) <= count
    assert trace.meta.notes


@pytest.mark.thorough
def test_an_unrelated_large_file_is_told_quickly(tmp_path):
    """Sooner than it could be decoded on this machine, as busy as it is."""

    def seconds(use):
        times = []
        for _ in range(3):
            started = time.process_time()
            use()
            times.append(time.process_time() - started)
        return min(times)

    def unrelated(rows):
        return b'{"rows": [' + b'{"id": 1}, ' * rows + b"0]}"

    def told():
        with pytest.raises(NotATraceError, match="no traceEvents"):
            kineto.peek(path)

    path, tenth = write(tmp_path / "a.json", unrelated(3_000_000)), unrelated(300_000)
    assert seconds(told) < 10 * seconds(lambda: json.loads(tenth))


ODD_VALUES = (
    None,
    HUGE,
    -HUGE,
    1e300,
    -1,
    1.5,
    "",
    "x",
    "NaN",
    float("nan"),
    float("inf"),
    [],
    [[]],
    {},
    {"ph": "X"},
    True,
)


def mutated(events, rng):
    for _ in range(rng.randrange(1, 5)):
        event = rng.choice(events)
        holder = rng.choice([event, event, event.get("args") or event])
        if not isinstance(holder, dict) or not holder:
            continue
        key = rng.choice(list(holder))
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice(ODD_VALUES)


def small_capture():
    comm = {"Collective name": "allreduce", "Group size": 2, "In msg nelems": 4, "Process Group Ranks": "[0, 1]"}
    memory = {"Total Allocated": 10, "Total Reserved": 20, "Device Id": 0, "Device Type": 1}
    return [
        host(0, 9, name="ProfilerStep#1", cat="user_annotation"),
        host(1, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=5),
        host(1, 3, name="record_param_comms", **comm),
        host(1, 3, name="aten::mm", **{"External id": 1, "Input Dims": [[2, 3], []], "Concrete Inputs": ["", ""]}),
        kernel(10, 2, correlation=5, grid=[4, 1, 1], **comm),
        kernel(20, 1, name="Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=4096),
        {"ph": "i", "name": "[memory]", "ts": 3, "args": memory},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ]


@pytest.mark.parametrize("seed", sampled(range(200), every=4))
def test_mutated_events_never_crash_the_reader(tmp_path, seed):
    rng = random.Random(seed)
    content = document(small_capture(), rank=0)
    mutated(rng.choice([content["traceEvents"], [content], [content["distributedInfo"]]]), rng)
    try:
        traces = read(write(tmp_path / "a.json", content))
    except NotATraceError:
        return
    assert all((trace.gpu_ops["end_ns"] >= trace.gpu_ops["start_ns"]).all() for trace in traces)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("seed", sampled(range(100), every=4))
def test_flipped_bytes_never_crash_the_reader(tmp_path, seed, suffix):
    rng = random.Random(seed)
    data = bytearray(write(tmp_path / f"a{suffix}", document(small_capture(), rank=0)).read_bytes())
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / f"b{suffix}"
    path.write_bytes(data)
    for use in (kineto.peek, read):
        try:
            use(path)
        except NotATraceError:
            continue


def test_flipped_bytes_of_a_real_capture_cost_few_events(tmp_path):
    text = bytearray(gzip.decompress((SAMPLES / "moe" / "rank0.json.gz").read_bytes()))
    whole = len(only(write(tmp_path / "whole.json", bytes(text))).gpu_ops)
    rng = random.Random(1)
    begin = text.index(b"traceEvents") + 20
    for _ in range(20):
        text[rng.randrange(begin, len(text) - 1000)] = rng.randrange(256)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        damaged = read(write(tmp_path / "a.json", bytes(text)))
    assert sum(len(trace.gpu_ops) for trace in damaged) > whole - 60
