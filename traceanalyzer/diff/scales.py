"""By what a capture's sums are divided so that two runs can be compared: steps, or tokens."""

from dataclasses import dataclass

from traceanalyzer.diff.captures import Capture

TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """Whether figures are of an optimizer step, of a thousand tokens, or of a whole capture, and its name."""

    name: str
    per_token: bool = False
    is_of_a_moment: bool = False

    def divisor(self, capture: Capture) -> float:
        """By what this capture's sums over its steps are divided.

        Per token: by the thousands of tokens that one rank had its share of (tokens of a step / world size · steps),
        so that runs of different batch, accumulation or world size are compared by GPU time for equal work.
        """
        return 1.0 if self.is_of_a_moment else capture.per * self.work(capture)

    def work(self, capture: Capture) -> float:
        """What one step of this capture is: 1, or the thousands of tokens that a rank has its share of."""
        if not self.per_token:
            return 1.0
        tokens, size = tokens_per_step(capture), world_size(capture)
        assert tokens and size, "per-token figures need tokens and world size of every run"  # noqa: PT018
        return tokens / size / TOKENS


STEP = Scale("optimizer step")

CAPTURE = Scale("whole capture")

MOMENT = Scale("one moment", is_of_a_moment=True)

TOKEN = Scale("1,000 tokens of a rank", per_token=True)


def tokens_per_step(capture: Capture) -> int | None:
    """Tokens that one optimizer step of all ranks consumes, from run.json."""
    told = capture.info.tokens_per_step if capture.info else None
    return told if told and told > 0 else None


def world_size(capture: Capture) -> int | None:
    """Ranks of the job: as the traces say, else run.json."""
    ranks = capture.table("ranks")
    known = ranks["world_size"].dropna() if ranks is not None else list[int]()
    told = int(max(known)) if len(known) else capture.info.world_size if capture.info else None
    return told if told and told > 0 else None
