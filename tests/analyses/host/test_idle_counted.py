"""Causes of idle time against a slow implementation: piece by piece of the time, by the rules in words."""

from hypothesis import given

from tests.analyses.random_events import LOADER, RANKS, kineto_events, pieces, read, runs
from tests.conftest import examples
from traceanalyzer.analyses import run

CAUSES = ("sync_ns", "data_ns", "host_ns", "launch_ns", "unknown_ns", "between_kernels_ns")
FIGURES = ("window_ns", "idle_ns", *CAUSES, "gaps")


def host_is_in(rank, thread, piece):
    """What the thread's events say of a piece: sync, data, host, or `None` where it records nothing."""
    calls = [op.launch for op in rank.gpu if op.launch]
    own = [event for event in (*rank.host, *calls) if event.thread == thread and runs(event, piece)]
    blocks = blocked(rank, thread)
    if any(event.name == "cudaDeviceSynchronize" for event in own) or any(
        begin <= piece[0] and piece[1] <= end for begin, end in blocks
    ):
        return "sync_ns"
    if any(event.name == LOADER for event in own):
        return "data_ns"
    return "host_ns" if any(event.cat != "user_annotation" for event in own) else None


def blocked(rank, thread):
    """Stretches in which the thread waits inside a call that copies from pageable memory."""
    for op in rank.gpu:
        if op.launch and op.launch.thread == thread and "Pageable" in op.name and op.start < op.launch.end:
            before = [other.end for other in rank.gpu if other.stream == op.stream and other.start < op.start]
            yield (op.launch.start if max(before, default=0) > op.launch.start else op.start), op.launch.end


def counted(rank):
    found = dict.fromkeys(FIGURES, 0)
    begin, end = min(op.start for op in rank.gpu), max(op.end for op in rank.gpu)
    busy = [op for op in rank.gpu if op.end > op.start]
    gaps = []
    for piece in pieces([begin, end, *(moment for op in busy for moment in (op.start, op.end))]):
        if any(runs(op, piece) for op in busy):
            continue
        if gaps and gaps[-1][1] == piece[0]:
            gaps[-1] = (gaps[-1][0], piece[1])
        else:
            gaps.append(piece)
    found["window_ns"], found["idle_ns"] = end - begin, sum(stop - start for start, stop in gaps)
    for start, stop in gaps:
        for cause, length in causes(rank, start, stop):
            found[cause] += length
        found["gaps"] += stop - start >= 5_000
    return found


def causes(rank, start, stop):
    if stop - start < 5_000:
        return [("between_kernels_ns", stop - start)]
    ending = next((op for op in rank.gpu if op.start == stop and op.end > op.start), None)
    last = ending or max((op for op in rank.gpu if op.start == stop), key=lambda op: op.start)
    if last.launch is None:
        return [("unknown_ns", stop - start)]
    launched = min(max(last.launch.end, start), stop)
    waited = [("launch_ns", min(stop - launched, 50_000)), ("unknown_ns", max(stop - launched - 50_000, 0))]
    launching = {op.launch.thread for op in rank.gpu if op.launch}
    events = [*rank.host, *(op.launch for op in rank.gpu if op.launch)]
    cuts = {start, launched, *(moment for event in events for moment in (event.start, event.end))}
    cuts |= {moment for thread in launching for stretch in blocked(rank, thread) for moment in stretch}
    for piece in pieces(moment for moment in cuts if start <= moment <= launched):
        told = host_is_in(rank, last.launch.thread, piece)
        others = {host_is_in(rank, thread, piece) for thread in launching - {last.launch.thread}}
        cause = told or next((one for one in ("sync_ns", "data_ns") if one in others), "host_ns")
        waited.append((cause, piece[1] - piece[0]))
    return waited


def figures(traces, rank=0):
    rows = run(traces, ["idle"])["idle"].rows()
    return [{name: row[name] for name in FIGURES} for row in rows if row["rank"] == rank]


@examples(20)
@given(RANKS)
def test_causes_of_idle_time_are_those_counted(tmp_path_factory, rank):
    expected = counted(rank)
    assert sum(expected[cause] for cause in CAUSES) == expected["idle_ns"]
    assert figures([read(tmp_path_factory.getbasetemp(), kineto_events(rank))]) == [expected]
