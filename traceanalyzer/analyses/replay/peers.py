"""What the same work takes on ranks that do the same, and the ranks' work dealt out evenly."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from traceanalyzer.analyses.communication.clocks import connected
from traceanalyzer.analyses.grouping import Groups, number_in_group
from traceanalyzer.analyses.pipelines.shape import is_of_hub
from traceanalyzer.analyses.replay.changes import COST_NS
from traceanalyzer.analyses.replay.contention import Contention
from traceanalyzer.analyses.replay.graph import Nodes, Piece
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

Part = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of a rank's rows their step, another column of their key, and which have a key."""


Made = TypeVar("Made")

MOST_HELD = 16_000_000
"""Numbers that replays hold at once, and that are kept for the next ones: 0.13 GB each."""


class Known:
    """Answers that are kept for whoever asks again; beyond `MOST_HELD` numbers the longest unasked go."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._held = 0

    def get_or_make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The answer of this key, made if it is not kept."""
        if key in self._answers:
            answer = self._answers.pop(key)
        else:
            answer = make()
            self._held += _size(answer)
        self._answers[key] = answer
        while self._held > MOST_HELD and len(self._answers) > 1:
            self._held -= _size(self._answers.pop(next(iter(self._answers))))
        return answer

    def let_go(self) -> None:
        """Keep none: they are worked out anew, to the same answers."""
        self._answers, self._held = {}, 0


def _size(answer: Any) -> int:
    if isinstance(answer, np.ndarray):
        return answer.size
    if isinstance(answer, Struct):
        answer = astuple(answer)
    return sum(map(_size, answer.values() if isinstance(answer, dict) else answer))


class Keyed:
    """Rows of all ranks that have the same key.

    Attributes:
        keys: for each rank the number of each row's key, -1 where it has none.
        counts: how many rows each rank (columns) has of each key (rows).
        step: of each key its step.
    """

    def __init__(self, parts: Mapping[int, Part]) -> None:
        """Number the keys, of two columns, of each rank's rows."""
        step, other, held = (np.concatenate(each) for each in zip(*parts.values(), strict=True))
        groups = Groups.of({"step": step[held], "other": other[held]}, ["step", "other"], by_appearance=True)
        self.step = step[held][groups.first]
        self._code = np.full(len(held), NONE, dtype=np.int64)
        self._code[held] = groups.of_row
        lengths = [len(part[0]) for part in parts.values()]
        self.keys = dict(zip(parts, np.split(self._code, np.cumsum(lengths)[:-1]), strict=True))
        self._held = held
        self._cell = self._code[held] * len(parts) + np.repeat(np.arange(len(parts)), lengths)[held]
        self._shape = (len(groups), len(parts))
        self.counts = np.bincount(self._cell, minlength=len(groups) * len(parts)).reshape(self._shape)

    def one_by_one(self, parts: Mapping[int, Part], least: float = 0.0) -> dict[int, Part]:
        """The parts with a key for each row where the ranks that have any have as many, else with their own, negative.

        Not where as small a share of the ranks, or less, has any.
        """
        most, has = self.counts.max(axis=1, initial=0), self.counts > 0
        is_alike = np.append(((self.counts == most[:, None]) | ~has).all(axis=1) & (has.mean(axis=1) > least), False)
        found = {}
        for rank, (step, other, held) in parts.items():
            key = self.keys[rank]
            place = key * most.max(initial=1) + number_in_group(key)
            found[rank] = step, np.where(is_alike[key], place, -2 - other), held
        return found

    def sums(self, lengths: Sequence[np.ndarray]) -> np.ndarray:
        """The sums of the ranks' values by key (rows) and rank (columns)."""
        sums = np.bincount(self._cell, np.concatenate(lengths)[self._held], self.counts.size)
        return sums.reshape(self._shape).astype(float)


class Peers:
    """Work of all ranks side by side.

    GPU work is compared by what the same work (`same_work`) takes in a step, and what ranks do not do equally often by
    what its operator takes between the same two communication calls of a step, as CPU work is. Without steps the whole
    capture is one. What communicates, and what belongs to no step of a job with steps, is compared with nothing.
    """

    def __init__(self, job: Job, contention: Contention) -> None:
        self.job, self.contention = job, contention
        self.overhead_ns: Mapping[str, int] = dict.fromkeys(COST_NS, 0)
        self.ranks = np.array([*job.nodes])
        self.place = {rank: column for column, rank in enumerate(job.nodes)}
        self.known = Known()

    def of(self, rank: int, changed: frozenset[int]) -> np.ndarray:
        """Columns of the ranks that do the same as `rank` and are not changed; of all that do when none is left.

        Of ranks in pipelines those of the same stage speak; stages are compared only where there is one pipeline.
        """
        alike = self.alike[self.place[rank]]
        others = alike & ~np.isin(self.ranks, list(changed))
        same_stage = others & (self.stages == self.stages[self.place[rank]])
        others = same_stage if same_stage.any() else others
        return np.flatnonzero(others if others.any() else alike & (len(changed) == len(self.ranks)))

    @cached_property
    def alike(self) -> np.ndarray:
        """Which ranks run the same kernels, but for some; of a rank without such others which run the same operators.

        Of other sizes of the same operators libraries run other kernels.
        """
        by_kernel = self._share(self._codes("name"))
        is_alone = (by_kernel | by_kernel.T).sum(axis=1) < 2
        return by_kernel | (is_alone[:, None] & self._share(self._programs)) if is_alone.any() else by_kernel

    def _share(self, codes: Mapping[int, np.ndarray]) -> np.ndarray:
        size = 1 + max(int(code.max(initial=NONE)) for code in codes.values())
        counts = np.stack([np.bincount(code[code != NONE], minlength=size) for code in codes.values()])
        rows = []
        for own in counts:
            shared, either = np.minimum(counts, own).sum(axis=1), np.maximum(counts, own).sum(axis=1)
            fewer = np.minimum(counts.sum(axis=1), own.sum())
            rows.append((shared >= SHARE * np.maximum(either, 1)) | (RATIO * shared >= np.maximum(fewer, 1)))
        return np.stack(rows)

    @cached_property
    def _programs(self) -> dict[int, np.ndarray]:
        """The operator that launched each operation, else its own name."""
        return self._codes("operator", "name")

    def _codes(self, *columns: str) -> dict[int, np.ndarray]:
        """The first of these texts that each operation has, as a number that all ranks share; -1 if not compared."""
        known, found = dict[str, int](), {}
        for rank, nodes in self.job.nodes.items():
            found[rank] = np.full(len(nodes.piece), NONE)
            for column in reversed(columns):
                values = nodes.piece.ops[column].cat
                codes = np.array([*(known.setdefault(name, len(known)) for name in values.categories), NONE])
                own = codes[values.codes.to_numpy()]
                found[rank] = np.where(own == NONE, found[rank], own)
            found[rank][~self._is_compared(nodes)] = NONE
        return found

    @cached_property
    def stages(self) -> np.ndarray:
        """Of each rank its place among those that it exchanges messages with, directly or not; 0 for those without."""
        stages: np.ndarray = np.tril(self.linked, -1).sum(axis=1)
        return stages

    @cached_property
    def linked(self) -> np.ndarray:
        """Which ranks exchange messages, directly or not, but for those that go round between attention kernels."""
        return linked_ranks(self.job)

    def _is_compared(self, nodes: Nodes) -> np.ndarray:
        return (nodes.column("ops", "call") == NONE) & self._is_in_step(nodes.column("ops", "step"))

    def _is_in_step(self, step: np.ndarray) -> np.ndarray:
        """Which of these are in a step; all of a job without steps."""
        return (step != NONE) if self._has_steps else np.ones(len(step), dtype=bool)

    @cached_property
    def _has_steps(self) -> bool:
        return any((nodes.column("ops", "step") != NONE).any() for nodes in self.job.nodes.values())

    def durations(self, rank: int, part: str, apart: frozenset[int] | None) -> np.ndarray:
        """What the rank's operations take where it does as much as its peers not `apart`, as fast as their median.

        With `None` what they take where all ranks' work of that part is dealt out evenly.
        """
        own = self.job.nodes[rank].column("ops", "duration_ns")
        if len(self.ranks) == 1:
            slower_ns = self.contention.slower_by_waits_ns.get(rank) if apart is not None else None
            return own if slower_ns is None else (own - slower_ns).astype(np.int64)
        if apart is None:
            return self._even(rank, part)
        wanted = self._usual(("compute",), self._free_sums, rank, apart)
        return own if wanted is None else _scaled(own, self._works.keys[rank], self._sums[:, self.place[rank]], wanted)

    @cached_property
    def _works(self) -> Keyed:
        """Each rank's operations by step, work and place; what ranks do not do equally often, by span and operator."""
        steps = {rank: nodes.column("ops", "step") for rank, nodes in self.job.nodes.items()}
        works = {rank: nodes.column("ops", "work") for rank, nodes in self.job.nodes.items()}
        programs = self._programs
        spans = {rank: self._span_of_ops(nodes) for rank, nodes in self.job.nodes.items()}
        count = 1 + max(int(span.max(initial=0)) for span in spans.values())
        same = Keyed({rank: (steps[rank], works[rank], works[rank] != NONE) for rank in steps})
        others = {rank: (steps[rank], programs[rank] * count + spans[rank], programs[rank] != NONE) for rank in steps}
        return Keyed(same.one_by_one(others, SHARE))

    @cached_property
    def _sums(self) -> np.ndarray:
        """What each rank's operations take by step and work."""
        return self._works.sums([nodes.column("ops", "duration_ns") for nodes in self.job.nodes.values()])

    @cached_property
    def _free_sums(self) -> np.ndarray:
        """The same without what compute takes longer beside waits: who is as fast as its peers makes nobody wait."""
        slower_ns, nodes = self.contention.slower_by_waits_ns, self.job.nodes.items()
        lengths = [own.column("ops", "duration_ns") - slower_ns.get(rank, 0) for rank, own in nodes]
        return self._works.sums(lengths) if slower_ns else self._sums

    def hosts(self, cost_ns: int, *, is_all: bool) -> dict[int, np.ndarray]:
        """Each rank's stretches of CPU work without the profiler's overhead of so much for each operator and call.

        Without what is in the data loader, too, unless they are `is_all`.
        """
        return {rank: without_profiler(nodes, cost_ns, is_all=is_all) for rank, nodes in self.job.nodes.items()}

    def _host_sums(self, cost_ns: int, *, is_all: bool) -> tuple[np.ndarray, np.ndarray]:
        """Their sums by rank (columns): by stretch, or span where they are not compared one by one, and by span."""
        each = [*self.hosts(cost_ns, is_all=is_all).values()]
        return self._spans.sums(each), self._whole_spans.sums(each)

    def host(self, rank: int, cost_ns: int, apart: frozenset[int] | None, *, is_all: bool) -> np.ndarray:
        """The rank's stretches of CPU work as on its peers, one by one; with `None` all ranks' work dealt out evenly.

        Where ranks do not launch equally often between two calls of a step, all stretches between these together.
        """
        own = without_profiler(self.job.nodes[rank], cost_ns, is_all=is_all)
        if len(self.ranks) == 1:
            return own
        if apart is None:
            return self._even(rank, "cpu", cost_ns, is_all=is_all)
        name = ("host sums", cost_ns, is_all)
        sums = self.known.get_or_make(name, lambda: self._host_sums(cost_ns, is_all=is_all))
        wanted, whole = (self._usual((*name, place), table, rank, apart) for place, table in enumerate(sums))
        if wanted is None or whole is None:
            return own
        alike = _scaled(own, self._spans.keys[rank], sums[0][:, self.place[rank]], wanted)
        # Medians of single stretches sum to less than spans of the peers take where a few stretches take far longer.
        key = self._whole_spans.keys[rank]
        held = key != NONE
        return _scaled(alike, key, np.bincount(key[held], alike[held], len(whole)), whole)

    @cached_property
    def _whole_spans(self) -> Keyed:
        """Each stretch of CPU work by its span between two calls of a step."""
        return Keyed(self._spans_of_hosts)

    @cached_property
    def _spans(self) -> Keyed:
        """The same, one by one where all ranks have as many stretches in a span."""
        return Keyed(self._whole_spans.one_by_one(self._spans_of_hosts))

    @property
    def _spans_of_hosts(self) -> dict[int, Part]:
        return {rank: self._span(nodes, nodes.column("host", "step")) for rank, nodes in self.job.nodes.items()}

    def _span(self, nodes: Nodes, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return step, since_first(calls_passed(nodes.piece), step), self._is_in_step(step)

    def _usual(
        self, name: tuple[Hashable, ...], table: np.ndarray, rank: int, apart: frozenset[int]
    ) -> np.ndarray | None:
        """The median of the peers' columns of a table of this name; `None` without peers."""
        columns, own = self.of(rank, apart), self.place[rank]
        if not len(columns):
            return None
        if apart != {rank} or own in columns:
            return self.known.get_or_make((*name, columns.tobytes()), lambda: np.median(table[:, columns], axis=1))
        # Of many ranks each is held against all the others: all of them together are put in order once. Without its
        # own value, what is not below it is one place further.
        every = np.sort(np.append(columns, own))
        middle = self.known.get_or_make((*name, "middle", every.tobytes()), lambda: _middle(table[:, every]))
        without = np.where(table[:, own, None] > middle[:, :2], middle[:, :2], middle[:, 1:])
        return (without[:, 0] + without[:, 1 - len(columns) % 2]) / 2

    def _even(self, rank: int, part: str, cost_ns: int = 0, *, is_all: bool = True) -> np.ndarray:
        """The rank's share of all ranks' work of that part."""
        key = ("even", part, cost_ns, is_all)
        return self.known.get_or_make(key, lambda: self._dealt_out(part, cost_ns, is_all=is_all))[rank]

    def _dealt_out(self, part: str, cost_ns: int, *, is_all: bool) -> dict[int, np.ndarray]:
        """All ranks' work of a part, as much for each between the same two calls: the sum over ranks stays."""
        if part == "cpu":
            lengths, spans = self.hosts(cost_ns, is_all=is_all), self._spans
        else:
            lengths, spans = {rank: _of_part(nodes, part) for rank, nodes in self.job.nodes.items()}, self._spans_of_ops
        found, known = self._dealt_out_to_stages(lengths, part), dict[bytes, tuple[np.ndarray, np.ndarray]]()
        sums, step = spans.sums([*lengths.values()]), np.unique(spans.step, return_inverse=True)[1]
        for rank in self.place.keys() - found.keys():
            column = self.place[rank]
            columns = self.alike[column].copy()
            columns[column] = True  # one that does nothing is like nobody
            if columns.tobytes() not in known:
                known[columns.tobytes()] = _shares(sums[:, columns], step)
            (is_shared, wanted), own = known[columns.tobytes()], sums[:, column]
            own = np.where(is_shared, own, np.bincount(step, own)[step])
            found[rank] = _scaled(lengths[rank], spans.keys[rank], own, wanted)
        return found

    def _dealt_out_to_stages(self, lengths: Mapping[int, np.ndarray], part: str) -> dict[int, np.ndarray]:
        """The same over stages of pipelines, between which layers can be moved: each operator's work by itself."""
        columns = {rank: self.linked[column] for rank, column in self.place.items() if self.linked[column].sum() > 1}
        if not columns:
            return {}
        spans = self._spans.keys.items()
        kinds = {rank: np.minimum(key, 0) for rank, key in spans} if part == "cpu" else self._programs
        works = Keyed({rank: (np.zeros_like(own), own, own != NONE) for rank, own in kinds.items()})
        sums, found = works.sums([*lengths.values()]), {}
        for rank, linked in columns.items():
            own = sums[:, self.place[rank]]
            found[rank] = _scaled(lengths[rank], works.keys[rank], own, _share_of_stage(sums[:, linked], own))
        return found

    @cached_property
    def _spans_of_ops(self) -> Keyed:
        """Each operation by the span of CPU work that launched it."""
        parts = {}
        for rank, nodes in self.job.nodes.items():
            parts[rank] = nodes.column("ops", "step"), self._span_of_ops(nodes), self._is_compared(nodes)
        return Keyed(parts)

    def _span_of_ops(self, nodes: Nodes) -> np.ndarray:
        """After how many calls of its step each operation was launched."""
        step, launch = nodes.column("ops", "step"), nodes.column("ops", "launch")
        passed = np.append(calls_passed(nodes.piece), 0)[launch]
        return np.where(launch == NONE, 0, since_first(passed, step))


def without_profiler(nodes: Nodes, cost_ns: int, *, is_all: bool = True) -> np.ndarray:
    """A rank's stretches of CPU work, of one as `Peers.hosts` has them."""
    left_out = cost_ns * nodes.column("host", "recorded")
    left_out = left_out if is_all else left_out + nodes.column("host", DATA.column)
    own: np.ndarray = np.maximum(nodes.column("host", "ns") - left_out, 0)
    return own


def _of_part(nodes: Nodes, part: str) -> np.ndarray:
    chosen = ~nodes.is_of("comm") if part == "rank" else nodes.is_of(part)
    return np.where(chosen, nodes.column("ops", "duration_ns"), 0)


def _shares(held: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each rank's even share of the ranks' (columns) spans (rows), or of all of their step where one has none of some.

    With it the spans of which each has its share.
    """
    is_shared = (held > 0).all(axis=1) | (held == 0).all(axis=1)
    is_shared = np.bincount(step, ~is_shared)[step] == 0
    mean = held.mean(axis=1)
    return is_shared, np.where(is_shared, mean, np.bincount(step, mean)[step])


def _share_of_stage(held: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A stage's even share of each kind of the stages' (columns) work (rows), and of all that some have none of.

    Together it is the mean stage, whatever the stage has of the rest.
    """
    mean, is_common = held.mean(axis=1), (held > 0).all(axis=1)
    rest = own * mean[~is_common].sum() / max(own[~is_common].sum(), 1)
    wanted = np.where(is_common, mean, rest)
    found: np.ndarray = wanted * mean.sum() / max(wanted.sum(), 1)
    return found


def _scaled(own: np.ndarray, key: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Lengths times what their key's sum should be of what it is."""
    factor = np.divide(wanted, held, out=np.ones_like(held), where=held > 0)
    scaled: np.ndarray = np.round(own * np.where(key == NONE, 1.0, np.append(factor, 1.0)[key])).astype(np.int64)
    return scaled


def _middle(table: np.ndarray) -> np.ndarray:
    """The three values of each row from which its median comes, whichever one of the row is left out."""
    count = table.shape[1]
    low = (count - 2) // 2
    places = np.minimum([low, low + 1, low + 2], count - 1)
    middle: np.ndarray = np.partition(table, places, axis=1)[:, places]
    return middle


def calls_passed(piece: Piece) -> np.ndarray:
    """For each piece of the rank's host work how many operations of communication were launched before it, in all."""
    launch = array_of(piece.ops, "launch")
    begins = np.zeros(len(piece.host), dtype=np.int64)
    begins[launch[(array_of(piece.ops, "call") != NONE) & (launch != NONE)]] = 1
    passed: np.ndarray = np.cumsum(begins) - begins
    return passed


def since_first(passed: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The numbers as counted from the smallest of their step."""
    groups = Groups.of_numbers(steps)
    return passed - groups.smallest(passed)[groups.of_row]


# Which ranks of a job exchange messages with each other: the stages of its pipelines.


def linked_ranks(job: Job) -> np.ndarray:
    """For each two ranks whether they do, directly or not.

    Messages between attention kernels, that go round, are no stages', nor are those around one rank (`hubs`).
    """
    joins, ranks = job.joins, np.array([*job.nodes])
    of_message = joins[joins["collective"].isin((*POINT_TO_POINT, "send_recv")) & ~joins["is_ring"]]
    pairs = of_message.groupby("instance")["rank"].agg(one="min", other="max").drop_duplicates()
    linked = np.eye(len(ranks), dtype=bool)
    for together in connected(pairs[~is_of_hub(pairs)].itertuples(index=False)):
        columns = np.isin(ranks, together)
        linked[np.ix_(columns, columns)] = True
    return linked


# Which calls that wait for the GPU a rank makes more often than its peers do.


_Place = tuple[int, str, int]
"""Step, name, and how many communication calls of the step were launched before."""


def more_calls(nodes: Mapping[int, Nodes], rank: int, peers: Collection[int]) -> list[int]:
    """Segments of the rank that begin with them: of a step and name as many as it makes more than any peer.

    Those between two communication calls between which it makes more of them.
    """
    left = _blocking_calls(nodes[rank]) if peers else Counter[tuple[int, str]]()
    most = Counter[tuple[int, str]]()
    for peer in peers:
        most |= _blocking_calls(nodes[peer])
        if not left - most:
            return []
    left = left - most
    own = _places(nodes[rank])
    usual = Counter[_Place]()
    for peer in peers if left else ():
        usual |= Counter(_places(nodes[peer]).values())
    found = []
    for segment, place in own.items():
        if usual[place] > 0:
            usual[place] -= 1
        elif left[place[:2]] > 0:
            left[place[:2]] -= 1
            found.append(segment)
    return found


def _places(nodes: Nodes) -> dict[int, _Place]:
    """Of each segment that a blocking call begins where that is."""
    held = np.flatnonzero(nodes.column("segments", "before") != NONE)
    first = np.searchsorted(nodes.column("host", "segment"), held)
    steps, names = nodes.column("segments", "step")[held], nodes.piece.segments["call"].to_numpy(dtype=object)[held]
    passed = since_first(np.append(calls_passed(nodes.piece), 0)[np.minimum(first, len(nodes.piece.host))], steps)
    return dict(zip(held.tolist(), zip(steps.tolist(), names.tolist(), passed.tolist(), strict=True), strict=True))


def _blocking_calls(nodes: Nodes) -> Counter[tuple[int, str]]:
    """How often the host makes which blocking call in which step."""
    return Counter(place[:2] for place in _places(nodes).values())
