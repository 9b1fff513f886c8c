"""Every communication operation of each rank with its arguments: the rows that all communication figures use."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.communication.inferred import with_inferred
from traceanalyzer.analyses.communication.operator_arguments import with_operators
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import COMM_ARGS, NONE
from traceanalyzer.selection import is_lost_launch

_ARGUMENTS = (
    "collective", "group", "group_description", "group_ranks", "group_size", "dtype",
    "in_elements", "out_elements", "in_split", "out_split", "sequence", "reduction", "root", "size_bytes",
)  # fmt: skip


class Calls(Result):
    """One row for each communication kernel or peer-to-peer copy, in order of start within a rank."""

    title: ClassVar[str] = "Communication calls"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "step": Column.ident("Step that launched it; absent for none."),
        "start_ns": Column.moment("Start on the GPU."),
        "end_ns": Column.moment("End on the GPU."),
        "stream": Column.ident("Stream that it ran on."),
        "collective": Column.text(
            "Collective or point-to-point operation; `coalesced` for different ones in one kernel.",
            written=Written.COLLECTIVE,
        ),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "group_size": Column.number("Number of ranks in the group.", is_aside=True),
        "dtype": Column.text("Element type.", written=Written.DTYPE, is_aside=True),
        "size_bytes": Column.size(
            "Size of the full array: all-reduce its buffer, all-gather the output, reduce-scatter the input, "
            "all-to-all the send buffer, else the buffer; summed over coalesced operations.",
            is_aside=True,
        ),
        "sequence": Column.ident("NCCL's number of the call within its group."),
        "reduction": Column.text(
            "What a reducing collective computes: sum, avg, max, min, product. Absent when the trace does not say: "
            "NCCL's payloads in Nsight reports do, PyTorch's profiler does not; a kernel named `Sum` serves all.",
            is_aside=True,
        ),
        "root": Column.ident("Root of a rooted collective."),
        "peers": Column.text("Peers of send and receive operations: `send 1, recv 1`."),
        "host_operations": Column.count("Host operations that the call carries.", is_compared=False),
        "is_uneven": Column.flag(
            "Whether an all-to-all's split sizes differ; absent when those that the trace shows are equal, "
            "but it left some out."
        ),
        "arguments": Column.text(
            "Where the arguments come from: kernel, host, operator (sizes only, by the dimensions of the one "
            "that launched it), or inferred from a later step (for a kernel that was launched before the capture); "
            "absent when nothing tells."
        ),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's communication operations, each with the arguments of its kernel, else of its host operations.

    A kernel's host operations are those around its launch on the same thread; a launch outside any (a group's
    end) carries those that ended on its thread since the communication launch before it, but for those that launched
    a kernel of their own, which the capture lost, and those that its kernel cannot carry. Of operations inside each
    other the outermost speaks.
    """
    ops = trace.gpu_ops
    rows = np.flatnonzero((ops["kind"] == "comm").to_numpy())
    if not len(rows):
        return pd.DataFrame()
    table = ops.iloc[rows][["start_ns", "end_ns", "stream", "name", "activity", "bytes", "grid"]].reset_index(drop=True)
    table.insert(0, "call", np.arange(len(rows)))
    table["gpu_op"] = rows
    table["step"] = _step_numbers(trace, rows)
    owner = _owners(trace, rows)
    table = with_operators(trace, rows, table.join(_merged(trace.comm_args, owner)))
    return with_inferred(_completed(table))[trace.counted[rows]].reset_index(drop=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Calls:
    """The ranks' calls under each other."""
    return Calls(stack(parts, tuple(Calls.columns)))


def _step_numbers(trace: RankTrace, rows: np.ndarray) -> pd.array:
    step = trace.op_step[rows]
    if not len(trace.steps):
        return pd.array([pd.NA] * len(rows), dtype="Int64")
    numbers = trace.steps["step"].to_numpy()[np.maximum(step, 0)]
    return pd.arrays.IntegerArray(numbers.astype(np.int64), step == NONE)


def _owners(trace: RankTrace, rows: np.ndarray) -> pd.Series:
    """For each `comm_args` row the position in `rows` of the call that it describes; calls of the kernel win."""
    args = trace.comm_args
    position = pd.Series(np.arange(len(rows)), index=rows)
    of_kernel = args["gpu_op"][args["gpu_op"] != NONE].map(position)
    of_host = _host_owners(trace, rows)
    return pd.concat([of_kernel, of_host[~of_host.isin(of_kernel)]]).dropna().astype("int64")


def _host_owners(trace: RankTrace, rows: np.ndarray) -> pd.Series:
    """The same for host operations: around a launch, or before a launch that is inside none."""
    host = trace.comm_args[trace.comm_args["gpu_op"] == NONE]
    launch = trace.gpu_ops["launch"].to_numpy()[rows]
    launched = np.flatnonzero(launch != NONE)
    calls = trace.api_calls.iloc[launch[launched]][["start_ns", "thread"]].assign(
        position=launched, sends=_sends(trace.gpu_ops["name"].iloc[rows[launched]])
    )
    # One launch of a graph may carry many kernels: its host operations cannot be told apart.
    calls = calls.drop_duplicates(["start_ns", "thread"], keep=False).sort_values("start_ns")
    if host.empty or calls.empty:
        return pd.Series(dtype="int64")
    following = pd.merge_asof(
        host.sort_values("start_ns")[["start_ns", "end_ns", "thread"]].reset_index(),
        calls.rename(columns={"start_ns": "launch_ns"}),
        left_on="start_ns", right_on="launch_ns", by="thread", direction="forward",
    ).dropna(subset="position")  # fmt: skip
    following["is_around"] = following["launch_ns"] < following["end_ns"]
    has_around = following.groupby("position")["is_around"].transform("any")
    following = following.set_index("index")
    held = host.loc[following.index]
    is_own = ~_launched_itself(trace, held) & (following["sends"].isna() | (following["sends"] == _is_sent(held)))
    kept = following["is_around"] | (~has_around.to_numpy() & is_own)
    return _outermost(held[kept], following.loc[kept, "position"].astype("int64"))


def _sends(names: pd.Series) -> pd.arrays.BooleanArray:
    """Whether each kernel sends and receives (`SendRecv`); NA where the name tells no collective."""
    of_name = {name: kinds.kernel_collective(name) for name in names.unique()}
    found = names.astype("object").map(of_name)
    sends: pd.arrays.BooleanArray = (found == "send_recv").astype("boolean").mask(found.isna()).array
    return sends


def _is_sent(host: pd.DataFrame) -> np.ndarray:
    """Host operations that NCCL carries out by sending and receiving."""
    sent: np.ndarray = host["collective"].isin((*kinds.POINT_TO_POINT, "all_to_all", "gather", "scatter")).to_numpy()
    return sent


def _launched_itself(trace: RankTrace, host: pd.DataFrame) -> np.ndarray:
    """Host operations during which their thread launched a kernel that the capture does not have."""
    lost = trace.api_calls.loc[is_lost_launch(trace.api_calls), ["start_ns", "thread"]]
    if lost.empty or host.empty:
        return np.zeros(len(host), dtype=bool)
    order = np.argsort(host["start_ns"].to_numpy(), kind="stable")
    following = pd.merge_asof(
        host.iloc[order][["start_ns", "end_ns", "thread"]],
        lost.rename(columns={"start_ns": "lost_ns"}),
        left_on="start_ns", right_on="lost_ns", by="thread", direction="forward",
    )  # fmt: skip
    found = np.zeros(len(host), dtype=bool)
    found[order] = (following["lost_ns"] < following["end_ns"]).to_numpy()
    return found


def _outermost(host: pd.DataFrame, position: pd.Series) -> pd.Series:
    """Positions of the host operations that lie in no other one of their call."""
    order = np.lexsort((-host["end_ns"].to_numpy(), host["start_ns"].to_numpy()))
    ends, calls = host["end_ns"].iloc[order], position.iloc[order]
    reach = ends.groupby(calls.to_numpy()).cummax().groupby(calls.to_numpy()).shift(fill_value=NONE)
    return calls[ends > reach]


def _merged(args: pd.DataFrame, owner: pd.Series) -> pd.DataFrame:
    """One row of arguments for each call; those of coalesced operations are added up or listed."""
    held = args.loc[owner.index].assign(position=owner, is_kernel=args["gpu_op"].loc[owner.index] != NONE)
    held["size_bytes"] = held["size_bytes"].fillna(sizes(held))
    is_uneven = _uneven(held["in_split"]) | _uneven(held["out_split"])
    held["is_uneven"], held["is_maybe_uneven"] = is_uneven.fillna(value=False), is_uneven.isna()
    held["is_message"] = held["collective"].isin(kinds.POINT_TO_POINT)
    held["peer_text"] = _peer_texts(held)
    groups = typed(held, {"collective": "object"}).groupby("position")
    table = groups[[name for name in _ARGUMENTS if name != "size_bytes"]].first()
    table["collective"] = _one_or_coalesced(held["collective"], owner, groups["is_message"].all())
    table["size_bytes"] = groups["size_bytes"].sum(min_count=1).where(groups["size_bytes"].count() == groups.size())
    is_uneven = groups["is_uneven"].any().astype("boolean")
    table["is_uneven"] = is_uneven.mask(~is_uneven & groups["is_maybe_uneven"].any())
    texts = held["peer_text"].dropna()
    table["peers"] = texts.groupby(owner[texts.index]).agg(", ".join).reindex(table.index)
    table["host_operations"] = groups.size()
    table["arguments"] = groups["is_kernel"].any().map({True: "kernel", False: "host"})
    return table


def sizes(args: pd.DataFrame) -> pd.Series:
    """Size in bytes of each operation's full array; NA when elements or dtype are unknown."""
    element = args["dtype"].astype("object").map(kinds.dtype_bytes, na_action="ignore").astype("Int64")
    gathers = (args["collective"] == "all_gather").to_numpy()
    elements = args["out_elements"].where(gathers, args["in_elements"])
    return (elements * element).astype("Int64")


def _uneven(split: pd.Series) -> pd.Series:
    """Whether sizes differ; NA when those that the trace shows are equal but it left some out."""
    sizes_of = {text: set(text.split(",")) for text in split.dropna().unique()}
    shown = {text: len(sizes - {kinds.CUT_LIST}) > 1 for text, sizes in sizes_of.items()}
    is_cut = split.map({text: kinds.CUT_LIST in sizes for text, sizes in sizes_of.items()}).astype("boolean")
    is_uneven = split.map(shown).astype("boolean").fillna(value=False)
    return is_uneven.mask(is_cut.fillna(value=False) & ~is_uneven)


def _peer_texts(held: pd.DataFrame) -> pd.Series:
    text = held["collective"].astype("object") + " " + held["peer"].astype("object").map(str, na_action="ignore")
    return text.where(held["peer"].notna(), None)


def _one_or_coalesced(collectives: pd.Series, owner: pd.Series, is_message: pd.Series) -> pd.Series:
    """The collective of a call; several in one kernel are `send_recv` when all are messages, else `coalesced`."""
    codes, names = pd.factorize(collectives.astype("object"))
    groups = pd.Series(codes, index=collectives.index).where(codes >= 0).groupby(owner)
    least, most = (ends.fillna(NONE).astype("int64") for ends in (groups.min(), groups.max()))
    one = pd.Series(np.array([*names, None], dtype=object)[least], index=least.index)
    return one.where(least == most, np.where(is_message, "send_recv", "coalesced"))


def _completed(table: pd.DataFrame) -> pd.DataFrame:
    """Fill what the operation itself tells: collective from its name, bytes of a peer-to-peer copy."""
    names = table["name"].astype("object")
    is_copy = (table["activity"] == "memcpy").to_numpy()
    of_name = names.map({name: kinds.kernel_collective(name) for name in names.unique()})
    of_name = of_name.where(~is_copy, "peer_copy")
    table["collective"] = table["collective"].astype("object").fillna(of_name).fillna("unknown")
    # A copy moves its own bytes: the host's call may carry out its collective by several.
    table["size_bytes"] = table["bytes"].where(is_copy).fillna(table["size_bytes"]).astype("Int64")
    table["host_operations"] = table["host_operations"].astype("Int64")
    table["is_uneven"] = table["is_uneven"].astype("boolean")
    integers = [name for name, dtype in COMM_ARGS.items() if name in _ARGUMENTS and dtype == "Int64"]
    return typed(table.drop(columns=["bytes"]), dict.fromkeys(integers, "Int64"))
