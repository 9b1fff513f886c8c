"""All-to-alls that are written as sends to and receives from every rank of a communicator, between NCCL's group calls.

PyTorch does so where sizes differ from rank to rank. One kernel carries all of a group's messages.
"""

import pandas as pd

_START, _END = "ncclGroupStart", "ncclGroupEnd"


def brackets(own: pd.DataFrame) -> pd.DataFrame:
    """The outermost pair of group calls around each of NCCL's ranges: `bracket` (-1 in none), its start and its end.

    Args:
        own: NCCL's ranges, of all processes and threads.
    """
    order = own.sort_values(["process", "thread", "start_ns"], kind="stable")
    name = order["name"].astype(str)
    step = (name == _START).astype(int) - (name == _END).astype(int)
    thread = [order["process"], order["thread"]]
    depth = step.groupby(thread).cumsum()
    opens = (name == _START) & (depth == 1)
    number = opens.cumsum() - 1
    # The end of a pair stands at the depth of what follows it.
    is_inside = (depth > 0) | ((name == _END) & (depth == 0))
    found = pd.DataFrame({"bracket": number.where(is_inside, -1)})
    spans = order.groupby(found["bracket"]).agg(bracket_start_ns=("start_ns", "min"), bracket_end_ns=("end_ns", "max"))
    return found.join(spans, on="bracket").reindex(own.index)


def with_all_to_alls(calls: pd.DataFrame, around: pd.DataFrame) -> pd.DataFrame:
    """The calls, with one all-to-all in place of the messages of a group call that reaches every rank both ways.

    Its splits are bytes: to and from each rank, in order. Of a communicator of unknown size, every rank is one more
    than the largest peer of all of the process's messages, where the rank's message to itself is among them.

    Args:
        calls: of all processes.
        around: rows of `brackets` for them.
    """
    is_message = calls["collective"].isin(("send", "recv")) & (around["bracket"].to_numpy() >= 0)
    is_message &= calls["peer"].notna() & calls["message_bytes"].notna() & calls["group"].notna()
    held = calls[is_message.to_numpy(dtype=bool)]
    if held.empty:
        return calls
    largest = held.groupby(["process", "group"], observed=True)["peer"].max()
    rows, firsts, made = [], [], []
    bracket = around["bracket"].to_numpy()[held.index]
    for (process, group, _), own in held.groupby(["process", "group", bracket], observed=True):
        ways = [own[own["collective"] == way].set_index("peer")["message_bytes"] for way in ("send", "recv")]
        ranks = range(_size(own, int(largest[process, group]) + 1))
        if all(_reaches(way, ranks, own["group_size"].iloc[0]) for way in ways):
            sent, received = (way.reindex(ranks, fill_value=0).astype("int64").tolist() for way in ways)
            span = around.iloc[own.index[0]]
            rows += own.index.tolist()
            firsts.append(own.index[0])
            made.append(
                own.iloc[0].to_dict()
                | {
                    "start_ns": int(span["bracket_start_ns"]),
                    "end_ns": int(span["bracket_end_ns"]),
                    "collective": "all_to_all",
                    "group_size": len(ranks),
                    "peer": pd.NA,
                    "in_split": ",".join(map(str, sent)),
                    "out_split": ",".join(map(str, received)),
                    "size_bytes": sum(sent),
                    "message_bytes": pd.NA,
                }
            )
    if not made:
        return calls
    kept = calls.drop(index=rows)
    added = pd.DataFrame(made, index=firsts)
    both = pd.concat([kept.astype({"collective": "object"}), added.astype(_types(kept))])
    return both.sort_index(ignore_index=True).astype({"collective": "category"})


def _types(calls: pd.DataFrame) -> dict[str, object]:
    return {name: "object" if name == "collective" else calls[name].dtype for name in calls.columns}


def _size(own: pd.DataFrame, seen: int) -> int:
    size = own["group_size"].iloc[0]
    return seen if pd.isna(size) else int(size)


def _reaches(way: pd.Series, ranks: range, told: object) -> bool:
    """Whether messages of one way have every rank as their peer once; all but one's own where the size is told."""
    missing = len(ranks) - len(way)
    is_each_once = way.index.is_unique and set(way.index) <= set(ranks)
    return is_each_once and len(ranks) > 1 and (missing == 0 or (missing == 1 and len(way) > 1 and not pd.isna(told)))
