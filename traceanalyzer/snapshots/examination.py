"""What a snapshot tells: peak, who holds it, what grows, what was asked for in vain, how fragmented it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.errors import InputError
from traceanalyzer.snapshots import given, levels
from traceanalyzer.snapshots.growth import Growth, growths
from traceanalyzer.snapshots.reading import Snapshot, read_snapshot
from traceanalyzer.snapshots.sites import by_category, by_site, site
from traceanalyzer.snapshots.taken import Taken, gave_back, taken_late
from traceanalyzer.snapshots.trace_steps import TraceSteps, by_steps


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A request that failed.

    Attributes:
        time_ns: when.
        requested_bytes: what was asked for.
        device_free_bytes: what the GPU had left; `None` where not told.
        site: who asked.
        requested_before_bytes: what tensors had requested, then.
        allocated_before_bytes: the same as the allocator rounds it, as the message of PyTorch's error has it.
        reserved_bytes: of the allocator, then.
    """

    time_ns: int
    requested_bytes: int
    device_free_bytes: int | None
    site: str
    requested_before_bytes: int
    allocated_before_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Examined:
    """One snapshot, and what it tells.

    Attributes:
        snapshot: as it was read.
        levels: as `traceanalyzer.snapshots.levels.levels` gives them.
        end: the levels at the time of the snapshot, as `traceanalyzer.snapshots.levels.at_end` gives them.
        peak_bytes: the most that tensors had requested at once in the history; without one what they held at the end.
        peak_at: position in the history of the event that reached it; -1 without a history.
        peak_allocated_bytes: the most that `torch.cuda.memory_allocated` said in the history: what was asked for,
            as the allocator rounds it.
        contradicted_bytes: by how much the blocks that are known at the peak differ from the level there: other than 0
            where events are missing between the first and the last, or the snapshot does not have its segments.
        is_exact: whether that is to the byte: the rules by which blocks are cut gave the size of each block at the end.
        peak_stacks: bytes of the peak by stack: `stack` (-1 for what was allocated before the history), `size_bytes`.
        peak_sites: who held the peak.
        peak_categories: the same by category; adds up to `peak_bytes`.
        end_sites: who holds what is in use at the end.
        growths: what piles up over steps.
        oom: the last request that failed, where the history has one.
        taken: whose requests made the allocator take more from the GPU in the second half of the history.
        gave_back: whether the allocator gave memory back to the GPU, as it does before it fails a request.
        free_bytes: reserved but not in use at the end.
        free_private_bytes: of these in pools of their own, as CUDA graphs have: only their graphs use them again.
        free_blocks: in how many blocks.
        largest_free_bytes: the largest of them.
        trace_steps: the history by the steps of the trace beside it; `None` without one.
    """

    snapshot: Snapshot
    levels: pd.DataFrame
    end: dict[str, int]
    peak_bytes: int
    peak_at: int
    peak_allocated_bytes: int
    contradicted_bytes: int
    is_exact: bool
    peak_stacks: pd.DataFrame
    peak_sites: pd.DataFrame
    peak_categories: pd.DataFrame
    end_sites: pd.DataFrame
    growths: tuple[Growth, ...]
    oom: OutOfMemory | None
    taken: tuple[Taken, ...]
    gave_back: bool
    free_bytes: int
    free_private_bytes: int
    free_blocks: int
    largest_free_bytes: int
    trace_steps: TraceSteps | None = None

    @property
    def has_history(self) -> bool:
        """Whether events were recorded: without them the peak is what was held at the end, and not a peak."""
        return self.peak_at >= 0


def examine_snapshot(snapshot: Snapshot) -> Examined:
    """All that a snapshot tells by itself."""
    over_time, end, lives = levels.levels(snapshot), levels.at_end(snapshot), levels.lifetimes(snapshot)
    peak_at = int(over_time["requested_bytes"].to_numpy().argmax()) if len(over_time) else -1
    peak = int(over_time["requested_bytes"].iloc[peak_at]) if len(over_time) else end["requested"]
    at_peak = levels.living(lives, peak_at) if len(over_time) else lives
    peak_sites = by_site(at_peak, snapshot.stacks)
    sizes, is_exact = given.given_bytes(snapshot, lives)
    allocated = given.allocated(snapshot, lives, sizes)
    at_end = levels.living(lives, max(len(snapshot.history) - 1, -1))
    is_free = snapshot.blocks["state"] == "inactive"
    free = snapshot.blocks.loc[is_free, "size_bytes"]
    of_private = snapshot.segments["is_private"].to_numpy()[snapshot.blocks.loc[is_free, "segment"].to_numpy()]
    return Examined(
        snapshot=snapshot,
        levels=over_time,
        end=end,
        peak_bytes=peak,
        peak_at=peak_at,
        peak_allocated_bytes=max(int(allocated.max(initial=0)), end["allocated"]),
        contradicted_bytes=int(at_peak["size_bytes"].sum()) - peak,
        is_exact=is_exact,
        peak_stacks=at_peak.groupby("stack", as_index=False)["size_bytes"].sum(),
        peak_sites=peak_sites,
        peak_categories=by_category(peak_sites),
        end_sites=by_site(at_end, snapshot.stacks),
        growths=tuple(growths(snapshot, lives)),
        oom=_oom(snapshot, over_time, allocated),
        taken=taken_late(snapshot),
        gave_back=gave_back(snapshot),
        free_bytes=int(free.sum()),
        free_private_bytes=int(free[of_private].sum()),
        free_blocks=len(free),
        largest_free_bytes=int(free.max()) if len(free) else 0,
    )


def beside_trace(examined: Sequence[Examined], steps: pd.DataFrame) -> tuple[Examined, ...]:
    """The same with the steps of the trace beside them: rows `rank`, `step`, `host_start_ns`, `host_end_ns`."""
    made = []
    for one in examined:
        own = steps[steps["rank"] == one.snapshot.rank] if len(steps) else steps
        found = by_steps(one.levels, one.peak_at, own) if len(own) else None
        made.append(replace(one, trace_steps=found))
    return tuple(made)


def examine_snapshots(paths: Sequence[Path]) -> tuple[Examined, ...]:
    """The same of several files, one after the other, by rank."""
    return _by_rank([examine_snapshot(read_snapshot(path)) for path in paths])


def examine_readable(paths: Sequence[Path]) -> tuple[tuple[Examined, ...], list[str]]:
    """The same of those that can be read, and why others cannot, in sentences.

    Raises:
        InputError: none can be read.
    """
    made, errors = list[Examined](), list[InputError]()
    for path in paths:
        try:
            made.append(examine_snapshot(read_snapshot(path)))
        except InputError as error:
            errors.append(error)
    if errors and not made:
        raise errors[0]
    return _by_rank(made), [f"Skipped: {error}" for error in errors]


def _by_rank(made: Sequence[Examined]) -> tuple[Examined, ...]:
    return tuple(sorted(made, key=lambda one: (one.snapshot.rank is None, one.snapshot.rank or 0)))


def deciding(examined: Sequence[Examined]) -> dict[int, str]:
    """Places of those that decide what fits, and by what: whose request failed first, and whose peak is the highest."""
    failed = [(one.oom.time_ns, place) for place, one in enumerate(examined) if one.oom is not None]
    found = {min(failed)[1]: "failed first"} if failed else {}
    if examined:
        most = max(range(len(examined)), key=lambda place: examined[place].peak_bytes)
        found[most] = ", ".join([*filter(None, [found.get(most)]), "highest peak"])
    return found


def _oom(snapshot: Snapshot, over_time: pd.DataFrame, allocated: np.ndarray) -> OutOfMemory | None:
    failed = snapshot.history.index[snapshot.history["action"] == "oom"]
    if failed.empty:
        return None
    at = int(failed[-1])
    event, level = snapshot.history.iloc[at], over_time.iloc[at]
    return OutOfMemory(
        time_ns=int(event["time_ns"]),
        requested_bytes=int(event["size_bytes"]),
        device_free_bytes=int(event["addr"]),
        site=site(snapshot.stacks[event["stack"]]),
        requested_before_bytes=int(level["requested_bytes"]),
        allocated_before_bytes=int(allocated[at]),
        reserved_bytes=int(level["reserved_bytes"]),
    )
