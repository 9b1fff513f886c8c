"""Which files are memory snapshots of PyTorch, told without what reads them."""

from pathlib import Path

from traceanalyzer.discovery.candidates import leads_out, walked
from traceanalyzer.files import safe_pickle


def is_snapshot(path: Path) -> bool:
    """Whether a file is a snapshot, by its first bytes: a pickle whose first key is that of a snapshot."""
    try:
        with path.open("rb") as file:
            if not safe_pickle.is_pickle(file.read(2)):
                return False
            file.seek(0)
            head = safe_pickle.unpacked(file).read(4096)
    except (OSError, EOFError, ValueError):
        return False
    return head[:1] == b"\x80" and (b"segments" in head[:200] or b"device_traces" in head[:200])


def find_snapshots(folder: Path, *, follows_links: bool = False) -> list[Path]:
    """Snapshots below a folder, or the file itself; links to outside the folder only where they are followed."""
    if folder.is_file():
        return [folder] if is_snapshot(folder) else []
    places = sorted(path for path in walked(folder) if path.suffix in {".pickle", ".pkl", ".gz", ".snapshot", ""})
    inside = [path for path in places if path.is_file() and (follows_links or not leads_out(path, folder))]
    return [path for path in inside if is_snapshot(path)]
