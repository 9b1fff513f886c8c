"""What a snapshot tells: peak, who holds it, what grows, fragmentation."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.errors import InputError
from traceanalyzer.snapshots.reading import Snapshot, Stack, read_snapshot

# What the allocator gave for each request: the history has what was asked for only.
#
# A request is rounded up to 512 bytes and cut from the start of a free block; what is left of that block stays with it
# where it is too small to be of use: up to 1 MiB in the pool of large blocks, nothing in that of small ones or in
# expandable segments (`c10/cuda/CUDACachingAllocator.cpp`: `round_size`, `should_split`). So the block ends where the
# next block in use begins, or its segment ends, if that is near enough.


_ROUND_BYTES = 512
_SMALL_BYTES = 1 << 20

MOST_EVENTS = 4_000_000
"""Longer histories are followed no further: their blocks count as rounded."""


def given_bytes(snapshot: Snapshot, lives: pd.DataFrame) -> tuple[np.ndarray, bool]:
    """Bytes of each row of `lives`, and whether they are exact: those of the blocks at the end are known, and agree."""
    rounded = rounded_bytes(lives["size_bytes"].to_numpy())
    sizes = rounded.copy()
    at_addr = dict(zip(snapshot.blocks["addr"], snapshot.blocks["size_bytes"], strict=True))
    at_end = (lives["died"] == len(snapshot.history)).to_numpy()
    known = np.array([at_addr.get(addr, 0) for addr in lives["addr"][at_end]], dtype=np.int64)
    if not _is_simple(snapshot) or 2 * len(lives) > MOST_EVENTS:
        sizes[at_end] = known
        return sizes, False
    sizes += _left_over(snapshot, lives, rounded)
    followed = at_end & (lives["born"] >= 0).to_numpy()
    is_exact = bool((sizes[followed] == known[followed[at_end]]).all()) and not (lives["stack"] == -1).any()
    sizes[at_end] = known
    return sizes, is_exact


def rounded_bytes(sizes: np.ndarray) -> np.ndarray:
    """Requests rounded up to whole units of 512 bytes, at least one."""
    made: np.ndarray = np.maximum(-(-sizes // _ROUND_BYTES), 1) * _ROUND_BYTES
    return made


def given_allocated(snapshot: Snapshot, lives: pd.DataFrame, given: np.ndarray) -> np.ndarray:
    """What `torch.cuda.memory_allocated` was after each event: a block counts from its request to that of its release.

    Its memory is free for others only when the streams that used it have come so far: until then it is active.
    """
    count = len(snapshot.history)
    until = _released(snapshot, lives)
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, np.maximum(lives["born"].to_numpy(), 0), np.where(lives["born"] >= 0, given, 0))
    np.subtract.at(change, until, given)
    before = int(given[(lives["born"] < 0).to_numpy()].sum())
    level: np.ndarray = before + np.cumsum(change[:count])
    return level


def _released(snapshot: Snapshot, lives: pd.DataFrame) -> np.ndarray:
    """Position of the request by which each block was released; the history's length where there is none."""
    count = len(snapshot.history)
    is_request = (snapshot.history["action"] == "free_requested").to_numpy()
    asked = np.flatnonzero(is_request)
    requests = pd.DataFrame({"at": asked, "addr": snapshot.history["addr"].to_numpy()[asked]})
    rows = lives[["addr", "born", "died"]].assign(row=np.arange(len(lives))).sort_values("died", kind="stable")
    found = pd.merge_asof(rows, requests.sort_values("at"), left_on="died", right_on="at", by="addr")
    at = np.full(len(lives), -1, dtype=np.int64)
    at[found["row"].to_numpy()] = found["at"].fillna(-1).to_numpy(dtype=np.int64)
    until: np.ndarray = np.where(at > lives["born"].to_numpy(), at, np.minimum(lives["died"].to_numpy(), count))
    return until


def _is_simple(snapshot: Snapshot) -> bool:
    """Whether the rules above are all: no setting rounds otherwise or forbids to split."""
    settings = snapshot.settings
    powers = settings.get("roundup_power2_divisions") or {}
    limit = settings.get("max_split_size", -1)
    is_split_always = not isinstance(limit, int) or limit in (-1, 2**63 - 1)
    divisions = powers.values() if isinstance(powers, dict) else [powers]
    return is_split_always and not any(divisions)


def _left_over(snapshot: Snapshot, lives: pd.DataFrame, rounded: np.ndarray) -> np.ndarray:
    """What of a free block stayed with each block that was cut from it."""
    ends = _cut_ends(snapshot)
    starts = np.array(sorted(ends), dtype=np.int64)
    left = np.zeros(len(lives), dtype=np.int64)
    addresses, born, died = (lives[name].to_numpy() for name in ("addr", "born", "died"))
    end_of = np.array([0, *(ends[start] for start in starts.tolist())])[starts.searchsorted(addresses, side="right")]
    living: list[int] = []
    rows = np.arange(len(lives))
    events = np.concatenate([rows, -1 - rows])
    for event in events[np.lexsort((events >= 0, np.concatenate([born, died])))].tolist():
        row = max(event, -1 - event)
        address = int(addresses[row])
        place = bisect_right(living, address)
        if event < 0:
            if living[max(place - 1, 0) : place] == [address]:
                del living[place - 1]
            continue
        if born[row] >= 0:
            rest = min([int(end_of[row]), *living[place : place + 1]]) - address - int(rounded[row])
            left[row] = rest if 0 < rest <= _SMALL_BYTES else 0
        living.insert(place, address)
    return left


def _cut_ends(snapshot: Snapshot) -> dict[int, int]:
    """Start → end of the segments at the end, and of those that the history freed; 0 where nothing stays with a block.

    So it is in those of small blocks, and in those that expand.
    """
    table = snapshot.segments
    columns = (table["addr"], table["size_bytes"], table["keeps_rest"])
    found = {int(addr): int(addr + size) if keeps else 0 for addr, size, keeps in zip(*columns, strict=True)}
    freed = snapshot.history[snapshot.history["action"] == "segment_free"]
    for addr, size in zip(freed["addr"].tolist(), freed["size_bytes"].tolist(), strict=True):
        found.setdefault(addr, addr + size if size > 2 * _SMALL_BYTES else 0)
    return found


# Where blocks were allocated, by file and line of the code that is not PyTorch's.


UNKNOWN = "unknown"

BEFORE = "before the history began"

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "communication", "temporaries", UNKNOWN)
"""What a block may be, by the frames that allocated it."""

BACKWARD = "backward pass"
_ENGINE, _NODE = "autograd::Engine", re.compile(r"(\w+Backward\d*|AccumulateGrad)::(?:apply|release_variables)")
_COMMUNICATION = ("_fsdp_collectives", "distributed_c10d", "_functional_collectives", "reducer", "flat_param")
_PARAMETERS = {"_apply", "convert", "reset_parameters", "to_empty", "register_parameter"}


def site(stack: Stack) -> str:
    """`train.py:25 in forward, from train.py:142 in <module>`: innermost and outermost line, PyTorch's left out.

    Autograd's threads run no Python: of theirs the node, `backward pass: AddmmBackward0`.
    """
    python = [frame for frame in stack if frame[0].endswith(".py")]
    own = [frame for frame in python if not is_of_torch(frame[0])]
    if not own:
        return line(python[0]) if python else _of_autograd(stack)
    return line(own[0]) if len(own) == 1 else f"{line(own[0])}, from {line(own[-1])}"


def _of_autograd(stack: Stack) -> str:
    names = [frame[2] for frame in stack]
    node = next((found[1] for name in names if (found := _NODE.search(name))), None)
    if node is not None:
        return f"{BACKWARD}: {node}"
    return BACKWARD if any(_ENGINE in name for name in names) else UNKNOWN


def category(stack: Stack) -> str:
    """One of CATEGORIES, as far as the frames tell it."""
    files = [frame[0].replace("\\", "/") for frame in stack]
    names = {frame[2] for frame in stack}
    if any(part in file for file in files for part in _COMMUNICATION):
        return "communication"
    if _is_of_optimizer(stack):
        return "optimizer state" if names & {"_init_group", "_init_state"} else "temporaries"
    if any(_ENGINE in name for name in names) or "backward" in names:
        return "gradients" if any("AccumulateGrad" in name for name in names) else UNKNOWN
    if any("torch/nn/modules/" in file and name in _PARAMETERS | {"__init__"} for file, _, name in stack):
        return "parameters"
    return "activations" if names & {"forward", "_call_impl"} else UNKNOWN


def _is_of_optimizer(stack: Stack) -> bool:
    """Whether an optimizer steps: what `zero_grad` frees is after that."""
    return any("torch/optim/" in file.replace("\\", "/") and name != "zero_grad" for file, _, name in stack)


def by_site(blocks: pd.DataFrame, snapshot: Snapshot) -> pd.DataFrame:
    """`site`, `category`, `blocks`, `size_bytes`, `stack` (one of the site's), largest first."""
    stacks = snapshot.stacks
    sites = pd.DataFrame({"stack": sorted(set(blocks["stack"]))})
    sites["site"] = [site(stacks[number]) if number >= 0 else BEFORE for number in sites["stack"]]
    sites["category"] = [category(stacks[number]) if number >= 0 else UNKNOWN for number in sites["stack"]]
    joined = blocks.merge(sites, on="stack")
    is_kept = (joined["category"] == "temporaries") & _outlives_optimizer(joined, snapshot)
    joined["category"] = joined["category"].mask(is_kept, "optimizer state")
    made = joined.groupby(["site", "category"], as_index=False).agg(
        blocks=("size_bytes", "size"), size_bytes=("size_bytes", "sum"), stack=("stack", "first")
    )
    return made.sort_values("size_bytes", ascending=False, ignore_index=True)


def _outlives_optimizer(blocks: pd.DataFrame, snapshot: Snapshot) -> np.ndarray:
    """Whether anything that is no optimizer's was allocated or freed while each block lived."""
    is_inside = np.array([*map(_is_of_optimizer, snapshot.stacks), True])  # the last one: of stacks that are unknown
    outside = np.flatnonzero(~is_inside[snapshot.history["stack"].to_numpy()])
    born, died = (outside.searchsorted(blocks[name].to_numpy()) for name in ("born", "died"))
    outlives: np.ndarray = born < died
    return outlives


def by_category(sites: pd.DataFrame) -> pd.DataFrame:
    """`category`, `blocks`, `size_bytes`: all of CATEGORIES that there are, `unknown` as one of them; an exact sum."""
    made = sites.groupby("category")[["blocks", "size_bytes"]].sum().reindex(list(CATEGORIES)).dropna()
    return made.astype("int64").reset_index()


def is_of_torch(file: str) -> bool:
    """Whether a file is PyTorch's, or generated."""
    path = file.replace("\\", "/")
    return path.startswith(("torch/", "<")) or "/torch/" in path


def line(frame: tuple[str, int, str]) -> str:
    """`train.py:25 in forward`."""
    return f"{frame[0].replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame[1]} in {frame[2]}"


# Blocks that live over steps: what is allocated in every step and never freed.


PARTS = 8
"""Equal parts of the recorded time, where no steps are marked."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A site whose blocks pile up.

    Attributes:
        site: where they are allocated.
        blocks: how many are alive at the end.
        size_bytes: what these take.
        per_step_bytes: mean over the steps in which such blocks were left.
        steps: steps in which such blocks were left.
        of_steps: steps of the history.
        is_by_steps: whether steps were marked, or equal parts of the time stand in.
    """

    site: str
    blocks: int
    size_bytes: int
    per_step_bytes: int
    steps: int
    of_steps: int
    is_by_steps: bool


def growths(snapshot: Snapshot, lives: pd.DataFrame) -> list[Growth]:
    """Sites that left blocks alive in most steps of the history, most bytes first."""
    bounds, is_by_steps = step_bounds(snapshot)
    left = lives[(lives["died"] == len(snapshot.history)) & (lives["born"] >= 0)]
    if len(bounds) < 3 or left.empty:
        return []
    times = snapshot.history["time_ns"].to_numpy()[left["born"].to_numpy()]
    table = left.assign(
        step=np.searchsorted(bounds, times, side="right"),
        site=left["stack"].map({number: site(snapshot.stacks[number]) for number in set(left["stack"])}),
    )
    of_steps = len(bounds)
    made = []
    for name, own in table.groupby("site"):
        steps, total = own["step"].nunique(), int(own["size_bytes"].sum())
        if steps >= max(3, SHARE * of_steps) and total >= _SMALL_BYTES:
            made.append(Growth(str(name), len(own), total, round(total / steps), steps, of_steps, is_by_steps))
    return sorted(made, key=lambda one: -one.size_bytes)


def step_bounds(snapshot: Snapshot) -> tuple[np.ndarray, bool]:
    """Times at which steps end: the optimizer's, where PyTorch marked them, else equal parts of the time."""
    marks = snapshot.annotations
    steps = marks[(marks["stage"] == "START") & marks["name"].str.startswith("Optimizer.step")]["time_ns"].to_numpy()
    if len(steps) >= 3:
        return np.sort(steps), True
    times = snapshot.history["time_ns"].to_numpy()
    if len(times) < 2:
        return np.array([], "int64"), False
    return np.linspace(times[0], times[-1], PARTS + 1).astype("int64")[1:], False


# What the allocator held over time: requested by tensors, and reserved, after every event of the history.


_SIGNS = {
    "requested": {"alloc": 1, "free_completed": -1},
    "reserved": {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1},
}


def levels_at_end(snapshot: Snapshot) -> dict[str, int]:
    """The levels at the time of the snapshot, in bytes, by its segments and blocks.

    Requested is what was asked for of blocks in use, those that wait for a stream included, and active what they take;
    allocated leaves out those that wait, as `torch.cuda.memory_allocated` does; reserved was taken from the GPU.
    """
    sizes, states = snapshot.blocks["size_bytes"], snapshot.blocks["state"]
    return {
        "requested": int(snapshot.blocks.loc[states != "inactive", "requested_bytes"].sum()),
        "active": int(sizes[states != "inactive"].sum()),
        "allocated": int(sizes[states == "active_allocated"].sum()),
        "reserved": int(snapshot.segments["size_bytes"].sum()),
    }


def levels(snapshot: Snapshot) -> pd.DataFrame:
    """One row for each event: `time_ns`, `requested_bytes`, `reserved_bytes` after it.

    Counted back from the snapshot's own state, so that what was allocated before the history began is in them.
    """
    history, end = snapshot.history, levels_at_end(snapshot)
    columns = {"time_ns": history["time_ns"]}
    for name, signs in _SIGNS.items():
        sign = history["action"].map(signs).astype("float64").fillna(0).to_numpy("int64")
        change = sign * history["size_bytes"].to_numpy()
        columns[f"{name}_bytes"] = pd.Series(end[name] - change.sum() + np.cumsum(change), index=history.index)
    return pd.DataFrame(columns)


def lifetimes(snapshot: Snapshot) -> pd.DataFrame:
    """One row for each block that the history or the snapshot knows.

    Returns:
        `addr`, `size_bytes` (as requested), `stack` (-1 for what was allocated before the history and freed in it:
        nobody recorded where), `born` and `died`: positions in the history, -1 and its length for before and after.
    """
    history = snapshot.history
    is_alloc = (history["action"] == "alloc").to_numpy()
    rows = np.flatnonzero(is_alloc | (history["action"] == "free_completed").to_numpy())
    addr = history["addr"].to_numpy()[rows]
    order = np.lexsort((rows, addr))
    at, addr, is_birth = rows[order], addr[order], is_alloc[rows][order]
    follows = np.append(addr[1:] == addr[:-1], False)
    died = np.where(follows, np.append(at[1:], 0), len(history))
    stranger = ~is_birth & ~np.insert(follows[:-1] & is_birth[:-1], 0, False)
    size, stack = history["size_bytes"].to_numpy(), history["stack"].to_numpy()
    born = pd.DataFrame({"addr": addr[is_birth], "size_bytes": size[at[is_birth]], "stack": stack[at[is_birth]],
                         "born": at[is_birth], "died": died[is_birth]})  # fmt: skip
    early = pd.DataFrame({"addr": addr[stranger], "size_bytes": size[at[stranger]], "stack": -1, "born": -1,
                          "died": at[stranger]})  # fmt: skip
    blocks = snapshot.blocks[snapshot.blocks["state"] != "inactive"]
    living = set(born.loc[born["died"] == len(history), "addr"])
    older = blocks[~blocks["addr"].isin(living)]
    older = older[["addr", "requested_bytes", "stack"]].rename(columns={"requested_bytes": "size_bytes"})
    older = older.assign(born=-1, died=len(history))
    return pd.concat([born, early, older], ignore_index=True)


def living(lives: pd.DataFrame, position: int) -> pd.DataFrame:
    """Blocks in use after the event at a position."""
    return lives[(lives["born"] <= position) & (lives["died"] > position)]


# What a snapshot tells: peak, who holds it, what grows, what was asked for in vain, how fragmented it is.


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A request that failed.

    Attributes:
        time_ns: when.
        requested_bytes: what was asked for.
        device_free_bytes: what the GPU had left; `None` where unknown.
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
        levels: as `levels` gives them.
        end: the levels at the time of the snapshot, as `levels_at_end` gives them.
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
        free_bytes: reserved but not in use at the end.
        free_private_bytes: of these in pools of their own, as CUDA graphs have: only their graphs use them again.
        free_blocks: in how many blocks.
        largest_free_bytes: the largest of them.
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
    free_bytes: int
    free_private_bytes: int
    free_blocks: int
    largest_free_bytes: int

    @property
    def has_history(self) -> bool:
        """Whether events were recorded: without them the peak is the memory in use at the end, and not a peak."""
        return self.peak_at >= 0


def examine_snapshot(snapshot: Snapshot) -> Examined:
    """All that a snapshot tells by itself."""
    over_time, end, lives = levels(snapshot), levels_at_end(snapshot), lifetimes(snapshot)
    peak_at = int(over_time["requested_bytes"].to_numpy().argmax()) if len(over_time) else -1
    peak = int(over_time["requested_bytes"].iloc[peak_at]) if len(over_time) else end["requested"]
    at_peak = living(lives, peak_at) if len(over_time) else lives
    peak_sites = by_site(at_peak, snapshot)
    sizes, is_exact = given_bytes(snapshot, lives)
    allocated = given_allocated(snapshot, lives, sizes)
    at_end = living(lives, max(len(snapshot.history) - 1, -1))
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
        end_sites=by_site(at_end, snapshot),
        growths=tuple(growths(snapshot, lives)),
        oom=_oom(snapshot, over_time, allocated),
        free_bytes=int(free.sum()),
        free_private_bytes=int(free[of_private].sum()),
        free_blocks=len(free),
        largest_free_bytes=int(free.max()) if len(free) else 0,
    )


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
