"""What the allocator held over time: requested by tensors, and reserved, after every event of the history.

The history records what was asked for; the blocks at the end also what was given, rounded up by the allocator.
"""

import numpy as np
import pandas as pd

from traceanalyzer.snapshots.reading import Snapshot

_SIGNS = {
    "requested": {"alloc": 1, "free_completed": -1},
    "reserved": {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1},
}


def at_end(snapshot: Snapshot) -> dict[str, int]:
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
    history, end = snapshot.history, at_end(snapshot)
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
    told = np.flatnonzero(is_alloc | (history["action"] == "free_completed").to_numpy())
    addr = history["addr"].to_numpy()[told]
    order = np.lexsort((told, addr))
    at, addr, is_birth = told[order], addr[order], is_alloc[told][order]
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
