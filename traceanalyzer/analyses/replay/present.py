"""Whether a job has what a change is about: a name that nothing bears would be answered with a gain of nothing."""

from collections.abc import Iterable
from difflib import get_close_matches

import pandas as pd

from traceanalyzer.analyses.replay.change import EVEN, FASTEST, OF_HOSTS, PEERS, Change
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT

_MOST_SAID = 5
"""Names that are given to choose from."""

_LONGEST = 60
"""Characters of a name that are shown."""

_COLUMNS = {"operator": ("ops", "operator"), "kernel": ("ops", "name"), "collective": ("ops", "collective"),
            "sync": ("segments", "call")}  # fmt: skip


def check(engine: Engine, change: Change) -> None:
    """Refuse what is not there.

    Raises:
        UsageError: no such rank, step, name or phase, or nobody to compare with.
        InputError: the captures have no hosts.
    """
    ranks = list(engine.job.nodes)
    missing = [] if change.part == "stage" else sorted(set(change.ranks or ()) - set(ranks))
    if missing:
        raise UsageError(f"{change}: there is no rank {missing[0]}; there are {_listed(ranks)}")
    if change.part in OF_HOSTS and not engine.has_hosts:
        raise InputError(f"{change}: the captures have no launches, so nothing can be said about hosts")
    if change.part == "stage" and not engine.ranks_of_stages:
        raise UsageError(f"{change}: no ranks of this job send to each other as stages of a pipeline")
    steps = sorted(set(change.steps or ()) - _steps(engine))
    if steps:
        known = sorted(_steps(engine))
        raise UsageError(f"{change}: there is no step {steps[0]}" + (f"; there are {_listed(known)}" if known else ""))
    if change.name and change.part in _COLUMNS:
        _check_name(engine, change, change.name)
    if len(ranks) < 2 and change.to in (PEERS, EVEN, FASTEST):
        raise UsageError(f"{change}: there is one rank only, and nothing to compare it with")
    if len(ranks) < 2 and change.part == "waits":
        raise UsageError(f"{change}: there is one rank only, and how long it waits for others is not known")
    if change.to == PEERS:
        _check_peers(engine, change)


def can_be_asked(engine: Engine, change: Change) -> bool:
    """Whether the job has what the change is about."""
    try:
        check(engine, change)
    except (InputError, UsageError):
        return False
    return True


def _check_peers(engine: Engine, change: Change) -> None:
    """Refuse a comparison with nobody: it would be answered with a gain of nothing, or of all."""
    ranks = engine.of_ranks([change])[0].ranks
    if change.part == "comm":
        if ranks is None or ranks >= set(engine.job.nodes):
            raise UsageError(f"{change}: transfers are compared with those of other ranks, and none are left")
        return
    changed = frozenset(engine.job.nodes) if ranks is None else ranks
    if not any(len(engine.peers.of(rank, changed)) for rank in changed):
        raise UsageError(
            f"{change}: no other rank runs the same kernels in the same steps, so there is nothing to compare with"
        )


def _check_name(engine: Engine, change: Change, name: str) -> None:
    known = _names(engine, *_COLUMNS[change.part])
    if change.part == "collective":
        known += _names(engine, "meetings", "name")
        known += [MESSAGES] if {*known} & {*POINT_TO_POINT} else []
    wanted = name.partition("@")[0] if change.part == "sync" else name
    if wanted in known or (change.part == "kernel" and any(wanted in own for own in known)):
        _check_phase(engine, change, name)
        return
    what = "call that blocks a host" if change.part == "sync" else change.part
    if not known:
        raise UsageError(f"{change}: this job has no {what} with a name")
    near = get_close_matches(wanted, known, _MOST_SAID, cutoff=0.5)
    shown = ", ".join(name if len(name) <= _LONGEST else name[:_LONGEST] + "…" for name in near or known[:_MOST_SAID])
    said = f"did you mean {shown}" if near else f"there are {shown}"
    more = ", …" if not near and len(known) > _MOST_SAID else ""
    verb = "contains" if change.part == "kernel" else "is called"
    raise UsageError(f"{change}: no {what} {verb} {wanted!r}; {said}{more}")


def _check_phase(engine: Engine, change: Change, name: str) -> None:
    """Of `sync CALL@PHASE` the phase."""
    phase = name.partition("@")[2] if change.part == "sync" else ""
    known = _names(engine, "host", "phase")
    if phase and phase not in known:
        raise UsageError(f"{change}: nothing is launched in a phase {phase!r}; there are {', '.join(known)}")


def _names(engine: Engine, table: str, column: str) -> list[str]:
    """All names of a column of the ranks' pieces, the most frequent first."""
    counts = [
        getattr(nodes.piece, table)[column].astype("object").value_counts() for nodes in engine.job.nodes.values()
    ]
    total = pd.concat(counts).groupby(level=0).sum().sort_values(ascending=False, kind="stable")
    return [str(name) for name, count in total.items() if name and count]


def _steps(engine: Engine) -> set[int]:
    found: set[int] = set()
    for nodes in engine.job.nodes.values():
        for table in (nodes.piece.ops, nodes.piece.host):
            found |= set(table["step"].unique().tolist())
    return {step for step in found if step >= 0}


def _listed(numbers: Iterable[int]) -> str:
    ordered = list(numbers)
    whole = ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 1
    return f"{ordered[0]} to {ordered[-1]}" if whole else ", ".join(map(str, ordered))
