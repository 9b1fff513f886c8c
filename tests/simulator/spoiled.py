"""What happens to the files of a capture: parts of them are missing, they are renamed, copied, split, packed otherwise."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

Spoil = Callable[[Path], None]

_HOST = {"cpu_op", "cuda_runtime", "user_annotation", "python_function"}
_GPU = {"kernel", "gpu_memcpy", "cuda_sync"}
_COLLECTIVE = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
               "Process Group Description", "Process Group Ranks", "Seq")  # fmt: skip


def of(folder: Path, rank: int) -> Path:
    """The rank's file."""
    return folder / f"rank{rank}.json.gz"


def read(path: Path) -> dict[str, Any]:
    """A file's document."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def write(path: Path, document: dict[str, Any]) -> None:
    """Packed, unless the name says otherwise."""
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)


def edited(ranks: Iterable[int], change: Callable[[dict[str, Any]], None]) -> Spoil:
    """Some ranks' documents are changed."""
    chosen = tuple(ranks)

    def spoil(folder: Path) -> None:
        for rank in chosen:
            document = read(of(folder, rank))
            change(document)
            write(of(folder, rank), document)

    return spoil


def without(categories: set[str]) -> Callable[[dict[str, Any]], None]:
    """Events of these categories are not recorded."""

    def change(document: dict[str, Any]) -> None:
        document["traceEvents"] = [each for each in document["traceEvents"] if each["cat"] not in categories]

    return change


def without_host(*ranks: int) -> Spoil:
    """Only the GPU side of these ranks was recorded."""
    return edited(ranks, without(_HOST))


def without_gpu(*ranks: int) -> Spoil:
    """Only the host's side of these ranks was recorded."""
    return edited(ranks, without(_GPU))


def gpu_clock(by_us: float, *ranks: int) -> Spoil:
    """The GPU's clock of these ranks is ahead of the host's by so much."""

    def change(document: dict[str, Any]) -> None:
        for each in document["traceEvents"]:
            each["ts"] += by_us if each["cat"] in _GPU else 0

    return edited(ranks, change)


def in_nanoseconds(rank: int) -> Spoil:
    """A rank's times are in another unit than the others'."""

    def change(document: dict[str, Any]) -> None:
        for each in document["traceEvents"]:
            each.update({name: each[name] * 1000 for name in ("ts", "dur") if name in each})

    return edited((rank,), change)


def relabelled(rank: int, other: int) -> Spoil:
    """One rank's file lies there as another's, too."""

    def spoil(folder: Path) -> None:
        document = read(of(folder, rank))
        document["distributedInfo"]["rank"] = other
        write(of(folder, other), document)

    return spoil


def without_shapes(*ranks: int) -> Spoil:
    """`record_shapes` was not asked for on these ranks."""

    def change(document: dict[str, Any]) -> None:
        for each in document["traceEvents"]:
            each["args"] = {
                key: value for key, value in each["args"].items() if key not in ("Input Dims", "Input type")
            }

    return edited(ranks, change)


def numbered_otherwise(by: int, *ranks: int) -> Spoil:
    """These ranks count their steps from another number."""

    def change(document: dict[str, Any]) -> None:
        for each in document["traceEvents"]:
            if each["name"].startswith("ProfilerStep#"):
                each["name"] = f"ProfilerStep#{int(each['name'].removeprefix('ProfilerStep#')) + by}"

    return edited(ranks, change)


def without_steps(*ranks: int) -> Spoil:
    """The loops of these ranks mark no steps."""

    def change(document: dict[str, Any]) -> None:
        every = document["traceEvents"]
        document["traceEvents"] = [each for each in every if not each["name"].startswith("ProfilerStep#")]

    return edited(ranks, change)


def old_version(ranks: int) -> Spoil:
    """A profiler that knows nothing of collectives: no arguments, no groups; the rank and the world's size it has."""

    def change(document: dict[str, Any]) -> None:
        info = document["distributedInfo"]
        document["distributedInfo"] = {key: info[key] for key in ("backend", "rank", "world_size")}
        document["traceEvents"] = [each for each in document["traceEvents"] if each["name"] != "record_param_comms"]
        for each in document["traceEvents"]:
            each["args"] = {key: value for key, value in each["args"].items() if key not in _COLLECTIVE}

    return edited(range(ranks), change)


def copied(rank: int, name: str) -> Spoil:
    """A rank's file lies there twice."""
    return lambda folder: _copy(of(folder, rank), folder / name)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def swapped(one: int, other: int) -> Spoil:
    """Two ranks' files have each other's name."""

    def spoil(folder: Path) -> None:
        first, second = of(folder, one), of(folder, other)
        first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
        first.write_bytes(second_bytes)
        second.write_bytes(first_bytes)

    return spoil


def unpacked(*ranks: int) -> Spoil:
    """Some files are plain text."""

    def spoil(folder: Path) -> None:
        for rank in ranks:
            path = of(folder, rank)
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()

    return spoil


def in_windows(ranks: int, begins: tuple[int, ...]) -> Spoil:
    """The profiler's schedule repeats: each rank has a file for each window, named as its handler names them.

    `begins` are the first steps of the windows after the first one; the last step before each is not recorded.
    """

    def spoil(folder: Path) -> None:
        for rank in range(ranks):
            document = read(of(folder, rank))
            of(folder, rank).unlink()
            marks = {int(each["name"].removeprefix("ProfilerStep#")): each["ts"] for each in document["traceEvents"]
                     if each["name"].startswith("ProfilerStep#")}  # fmt: skip
            edges = [0, *begins, max(marks) + 2]
            for window, (first, next_first) in enumerate(pairwise(edges)):
                begin, end = marks[first], marks.get(next_first - 1, 1e18)
                kept = [
                    each for each in document["traceEvents"] if begin <= each["ts"] and each["ts"] + each["dur"] <= end
                ]
                stamp = 1_790_000_000_000_000_000 + window * 7_000_000_000 + rank * 1_300_000
                write(folder / f"node0_{4000 + rank}.{stamp}.pt.trace.json.gz", {**document, "traceEvents": kept})

    return spoil


def restarted(first: Callable[[Path], None], later_us: float = 0) -> Spoil:
    """Files of a run before, written by `first` into a folder of its own, lie beside; this one begins so much later."""

    def spoil(folder: Path) -> None:
        for path in folder.iterdir():
            document = read(path)
            document["traceEvents"] = [each | {"ts": each["ts"] + later_us} for each in document["traceEvents"]]
            write(path, document)
        before = folder / "before"
        first(before)
        for path in before.iterdir():
            path.rename(folder / f"old_{path.name}")
        before.rmdir()

    return spoil


def of_nodes(each: int, ranks: int, names: str = "node{}") -> Spoil:
    """Each node's files lie in a folder of their own, named by the rank within it, and nothing inside tells the job's."""

    def spoil(folder: Path) -> None:
        for rank in range(ranks):
            document = read(of(folder, rank))
            del document["distributedInfo"]
            of(folder, rank).unlink()
            node = folder / names.format(rank // each)
            node.mkdir(exist_ok=True)
            write(of(node, rank % each), document)

    return spoil
