"""What bubble a pipeline's order of passes has by itself: played with even passes and free transfers."""

from collections.abc import Collection

import pandas as pd

from traceanalyzer.analyses.pipelines.stage_ranges import FORWARD, INPUTS, WEIGHTS

_Pass = tuple[str, int, int]
"""What it computes (`F`, `B`, `W`), its stage and its microbatch."""

_Action = list[tuple[_Pass, float]]
"""Passes and their lengths that run one after the other, and whose results are sent when all are done."""

_KIND = {FORWARD: "F", INPUTS: "B", WEIGHTS: "W"}


def played_pct(passes: pd.DataFrame) -> float | None:
    """100 · idle / (ranks · makespan) of a step whose passes run in their order, each as long as the mean of its kind.

    A forward pass needs that of the stage before it; a backward one its own forward pass and the backward one of the
    stage after it; gradients of weights only those of its inputs, or what these would need (a first stage computes
    none where its inputs need none). `passes` has `rank`, `step`, `slot`, `phase`,
    `virtual_stage`, `microbatch`, `is_beside` and `compute_ns`; the order is that of the first step. `None` where the
    passes cannot run in it, as where one is missing.
    """
    first = passes[passes["step"] == passes["step"].min()].sort_values("slot", kind="stable")
    lengths = passes.groupby("phase")["compute_ns"].mean().astype("float64").to_dict()
    todo = {rank: _actions(own, lengths) for rank, own in first.groupby("rank")}
    ends = _ends(todo, int(first["virtual_stage"].max()))
    makespan = max(ends.values()) if ends else 0.0
    busy = sum(length for of_rank in todo.values() for action in of_rank for _, length in action)
    return 100.0 * (1 - busy / (len(todo) * makespan)) if makespan > 0 else None


def _actions(own: pd.DataFrame, lengths: dict[object, float]) -> list[_Action]:
    """One rank's passes in order; a forward pass and the backward one beside it are one action."""
    found: list[_Action] = []
    is_open = False
    columns = ("phase", "virtual_stage", "microbatch", "is_beside")
    for phase, stage, number, is_beside in zip(*(own[name] for name in columns), strict=True):
        one = ((_KIND.get(phase, "B"), int(stage), int(number)), lengths[phase])
        if is_beside and is_open:
            found[-1].append(one)
        else:
            found.append([one])
        is_open = bool(is_beside) and not is_open
    return found


def _ends(todo: dict[object, list[_Action]], last: int) -> dict[_Pass, float] | None:
    """When each pass ends; `None` where they wait for each other for ever."""
    ends: dict[_Pass, float] = {}
    present = {what for own in todo.values() for action in own for what, _ in action}
    free, place = dict.fromkeys(todo, 0.0), dict.fromkeys(todo, 0)
    left = sum(map(len, todo.values()))
    while left:
        before = left
        for rank, own in todo.items():
            while place[rank] < len(own):
                action = own[place[rank]]
                inside = {what for what, _ in action}
                needed = [[each for each in _needs(what, last, present) if each not in inside] for what, _ in action]
                if any(each not in ends for needs in needed for each in needs):
                    break
                for needs, (_, length) in zip(needed, action, strict=True):
                    free[rank] = max([free[rank], *(ends[each] for each in needs)]) + length
                ends.update(dict.fromkeys(inside, free[rank]))
                place[rank] += 1
                left -= 1
        if left == before:
            return None
    return ends


def _needs(what: _Pass, last: int, present: Collection[_Pass]) -> list[_Pass]:
    kind, stage, number = what
    if kind == "F":
        return [("F", stage - 1, number)] if stage else []
    if kind == "W" and ("B", stage, number) in present:
        return [("B", stage, number)]
    return [("F", stage, number), *([("B", stage + 1, number)] if stage < last else [])]
