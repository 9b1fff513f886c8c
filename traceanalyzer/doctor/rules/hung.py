"""Rules about a hung job's flight recorder: who never came, who came with another collective."""

from datetime import UTC, datetime

from traceanalyzer.doctor import hang
from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.send_recv import open_calls
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.sentences import first_upper

_TORCH = ("torch/", "distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")


def rank_never_came(case: Case) -> list[Diagnosis]:
    """Of each process group the first collective that some ranks never called."""
    if case.recorder is None or case.standing is None:
        return []
    return [_absence(one) for one in case.standing.absences if one.missing]


def _absence(one: hang.Absence) -> Diagnosis:
    who = numbered("rank", one.missing)
    since = "" if one.since_ns is None else f" since {_time(one.since_ns)}"
    last = "; ".join(f"rank {rank} last called {_named(operation)} number {seq} ({state})"
                     for rank, (seq, operation, state) in list(one.last.items())[:4])  # fmt: skip
    silent = [rank for rank in one.missing if rank not in one.last]
    if silent:
        last = "; ".join(
            part for part in (last, f"{numbered('rank', silent)} recorded no collective in this group") if part
        )
    where = f" It is called at {_user_frame(one.frames)}." if one.frames else ""
    there = f" The last call of rank {one.missing[0]} in the group was at {_user_frame(one.missing_frames)}." * bool(
        one.missing_frames
    )
    size = f" of {one.sizes.split(' → ', maxsplit=1)[0]} {one.dtypes.split(' → ', maxsplit=1)[0]}".rstrip()
    limit = f" (limit {one.timeout_ms / 1000:g} s)" if one.timeout_ms is not None else ""
    waiting, verb = numbered("rank", one.came), "waits" if len(one.came) == 1 else "wait"
    called = f"{_named(one.operation)} number {one.seq}"
    return Diagnosis(
        severity="high",
        diagnosis=f"{first_upper(who)} never came to {called} of {one.group.label}{since}: {waiting} {verb} there."
        f"{where}",
        signal=f"{called}{size} is not complete on {waiting}{limit}; {last}.{there}",
        recommendation=f"Look at what {who} did after that call: an exception, an early end of its data, a branch that "
        "skips the collective, a slow save or load. py-spy dump on that process shows it while it hangs.",
        caveat="Recorded is the call on the host. A rank whose kernel hangs on the GPU has made the call and is not "
        "missing here.",
        ranks=one.missing,
    )


def mismatched_calls(case: Case) -> list[Diagnosis]:
    """Ranks that called another operation, size or dtype under one number."""
    if case.recorder is None or case.standing is None:
        return []
    return [_mismatch(one) for one in case.standing.mismatches]


def _mismatch(one: hang.Mismatch) -> Diagnosis:
    ranks = tuple(one.others)
    shown = "; ".join(f"rank {rank}: {_told(one.what, value)}" for rank, value in list(one.others.items())[:6])
    frames = next(((rank, frames) for rank, frames in one.frames.items() if frames), None)
    where = f" Rank {frames[0]} calls it at {_user_frame(frames[1])}." if frames else ""
    usual = f"{one.agreeing} {'rank has' if one.agreeing == 1 else 'ranks have'} {_told(one.what, one.usual)}"
    caveat = (
        "As many ranks have the one as the other: which is right cannot be told."
        if one.is_even
        else "The majority is taken to be right."
    )
    what = {"operation": "another operation", "sizes": "other sizes", "dtypes": "other dtypes"}[one.what]
    who = numbered("rank", ranks)
    return Diagnosis(
        severity="high",
        diagnosis=f"{first_upper(who)} came to collective number {one.seq} of {one.group.label} with {what} than the "
        f"others: {shown}, where {usual}.{where}",
        signal=f"Under number {one.seq} the dumps have {usual}; {shown}.",
        recommendation="Look for a branch that only some ranks take, for uneven batches or expert counts, and for "
        "collectives called in another order.",
        caveat=caveat + " Numbers count calls of each rank: after one call too many or too few all later ones differ.",
        ranks=ranks,
    )


def open_send_recv(case: Case) -> list[Diagnosis]:
    """A send or receive that waits for an end that was never called, or that both ends called in vain."""
    if case.recorder is None:
        return []
    calls = open_calls(case.recorder)
    if not calls:
        return []
    first = calls[0]
    kind, other = ("send to", "receive") if first.is_send else ("receive from", "send")
    since = "" if first.since_ns is None else f" since {_time(first.since_ns)}"
    if not first.peer_left_dump:
        why = f"rank {first.peer} left no dump"
    elif first.peer_is_open:
        why = f"rank {first.peer} has called its half too, and neither completes"
    else:
        why = f"rank {first.peer} has no open {other} for it: it never came to it, or it is done with it already"
    where = f" It is called at {_user_frame(first.frames)}." if first.frames else ""
    waiting = [one.rank for one in calls]
    return [
        Diagnosis(
            severity="high",
            diagnosis=f"Rank {first.rank} waits in a {kind} rank {first.peer} of {first.group.label}{since}: "
            f"{why}.{where}",
            signal=f"Sends or receives that are not complete on {numbered('rank', waiting)}; of each rank the first: "
            + "; ".join(f"rank {one.rank} {'to' if one.is_send else 'from'} {one.peer}" for one in calls[:8])
            + ".",
            recommendation=f"Look at rank {first.peer} first: what it does instead, and whether both sides agree on "
            "the order of sends and receives (a schedule's microbatches, a send that needs its receive posted).",
            caveat="Stages further down wait for what these hold up: the first in time is where to look, and it is by "
            "the ranks' own clocks.",
            ranks=(first.rank, first.peer),
        )
    ]


def ranks_without_dump(case: Case) -> list[Diagnosis]:
    """Ranks of a process group that left no dump."""
    if case.recorder is None or case.standing is None:
        return []
    expected = {rank for group in case.recorder.groups.values() for rank in group.ranks or ()}
    absent = tuple(sorted(expected - set(case.recorder.dumps)))
    if not absent:
        return []
    waited = [one for one in case.standing.absences if one.undumped]
    first = f" {_first_open(waited[0])}" if waited else ""
    who = numbered("rank", absent)
    they = "it" if len(absent) == 1 else "they"
    died = f"{first_upper(who)} left no dump: {they} may have died before the others hung."
    return [
        Diagnosis(
            severity="high" if waited and not any(one.missing for one in waited) else "medium",
            diagnosis=f"{died}{first}",
            signal=f"{len(case.recorder.dumps)} dumps for {len(expected)} ranks of the process groups.",
            recommendation=f"Look at the output of {who}: a crash, an out-of-memory kill, a lost node.",
            caveat="The file may also be on another node's disk, or not have been copied.",
            ranks=absent,
        )
    ]


def _first_open(one: hang.Absence) -> str:
    return f"{_named(one.operation).capitalize()} number {one.seq} of {one.group.label} is the first not complete."


def open_everywhere(case: Case) -> list[Diagnosis]:
    """A collective that all ranks called alike, and that did not complete."""
    if case.recorder is None or case.standing is None or case.standing.absences or case.standing.mismatches:
        return []
    calls = case.recorder.entries
    stuck = calls[(calls["state"] != "completed") & ~calls["is_p2p"]]
    if stuck.empty:
        return []
    first = stuck.sort_values("created_ns", na_position="last", kind="stable").iloc[0]
    group = case.recorder.groups[str(first["group"])]
    own = stuck[(stuck["group"] == first["group"]) & (stuck["seq"] == first["seq"])]
    called = f"{_named(str(first['operation']))} number {first['seq']} of {group.label}"
    states = ", ".join(f"{count} × {state}" for state, count in own["state"].value_counts().items())
    return [
        Diagnosis(
            severity="high",
            diagnosis=f"All ranks called {called} alike, and on {numbered('rank', own['rank'].tolist())} it is not "
            "complete: the program is in step, the transfer is not.",
            signal=f"Every rank of the group has the call; states: {states}.",
            recommendation="Look at the link, not at the program: the NCCL log's warnings (--nccl-log), the topology "
            "(--topo), network and GPU errors (dmesg for Xid, ibstat, nvidia-smi -q).",
            caveat="A kernel queued before it on the same stream, or a dump taken in passing, looks the same.",
        )
    ]


def _named(operation: str) -> str:
    return operation.strip("_").replace("_", "-") or "a collective"


def _told(what: str, value: str) -> str:
    return _named(value) if what == "operation" else value


def _user_frame(frames: tuple[str, ...]) -> str:
    """The innermost frame that is not PyTorch's own."""
    own = (frame for frame in frames if not any(part in frame for part in _TORCH))
    return next(own, frames[0] if frames else "a place that its dump does not tell")


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
