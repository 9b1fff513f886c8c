"""Where blocks were allocated, by file and line of the code that is not PyTorch's."""

import re
from collections.abc import Sequence

import pandas as pd

from traceanalyzer.snapshots.stacks import Stack

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
    if any("torch/optim/" in file for file in files):
        return "optimizer state" if names & {"_init_group", "_init_state"} else "temporaries"
    if any(_ENGINE in name for name in names) or "backward" in names:
        return "gradients" if any("AccumulateGrad" in name for name in names) else UNKNOWN
    if any("torch/nn/modules/" in file and name in _PARAMETERS | {"__init__"} for file, _, name in stack):
        return "parameters"
    return "activations" if names & {"forward", "_call_impl"} else UNKNOWN


def by_site(blocks: pd.DataFrame, stacks: Sequence[Stack]) -> pd.DataFrame:
    """`site`, `category`, `blocks`, `size_bytes`, `stack` (one of the site's), largest first."""
    told = pd.DataFrame({"stack": sorted(set(blocks["stack"]))})
    told["site"] = [site(stacks[number]) if number >= 0 else BEFORE for number in told["stack"]]
    told["category"] = [category(stacks[number]) if number >= 0 else UNKNOWN for number in told["stack"]]
    joined = blocks.merge(told, on="stack")
    made = joined.groupby(["site", "category"], as_index=False).agg(
        blocks=("size_bytes", "size"), size_bytes=("size_bytes", "sum"), stack=("stack", "first")
    )
    return made.sort_values("size_bytes", ascending=False, ignore_index=True)


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
