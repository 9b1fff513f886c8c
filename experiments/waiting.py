"""A run whose processes load PyTorch and then wait until they may begin."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = Path(__file__).with_name("begin.py")


@dataclass
class Waiting:
    """Processes of one run that have not begun."""

    folder: Path
    process: subprocess.Popen[bytes]
    ranks: int
    start_s: float = field(default=0.0)

    @classmethod
    def load(cls, folder: Path, arguments: list[str], ranks: int, variables: dict[str, str] | None = None) -> Waiting:
        """Start the processes with these variables more; their output goes to `folder`.log."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = _command(arguments, ranks)
        with folder.with_suffix(".log").open("w") as log:
            print(" ".join(command[1:]), file=log, flush=True)
            pipes = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
            process = subprocess.Popen(
                command, **pipes, env={**os.environ, **(variables or {})}, start_new_session=True
            )
        return cls(folder, process, ranks)

    def begin(self) -> None:
        """Let every rank go; what it still has to load counts from here on."""
        self.start_s = time.monotonic()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as pipe:  # they have ended already, which their status tells
            pipe.write(b"." * self.ranks)

    def outcome(self, timeout_s: float) -> tuple[str, float]:
        """How the run ended, in a word, and its seconds."""
        try:
            status = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            return "timed out", time.monotonic() - self.start_s
        except BaseException:
            # Its processes are in a session of their own, which an interrupt of this one does not reach.
            self.end()
            raise
        return ("ok" if status == 0 else f"exit {status}"), time.monotonic() - self.start_s

    def end(self) -> None:
        """End the run with all its ranks, first politely: they then write what they have recorded."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            # torchrun gives its ranks half a minute.
            self.process.wait(timeout=45)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def discard(waiting: Waiting | None) -> None:
    """End a run that is not wanted after all, and its log."""
    if waiting is not None:
        waiting.end()
        waiting.folder.with_suffix(".log").unlink(missing_ok=True)


def is_out_of_memory(folder: Path) -> bool:
    """Whether the run said so itself."""
    path = folder / "run.json"
    return path.exists() and json.loads(path.read_text())["status"] == "oom"


def _command(arguments: list[str], ranks: int) -> list[str]:
    """Under nsys, which starts the processes itself, nothing can be loaded ahead, and the byte is not read."""
    if "nsys" in arguments:
        return [sys.executable, "-m", "traceanalyzer.runners", "--ranks", str(ranks), *arguments]
    if ranks == 1:
        return [sys.executable, str(BEGIN), *arguments]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"),
        *(str(BEGIN), *arguments),
    ]
