"""Questions to a report, asked one at a time: by a program, a shell or an assistant through MCP."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Question:
    """What is answered in one sentence, and by name what must and what may be given, of `verbs.Asked`."""

    what: str
    arguments: str
    selectors: str = ""


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "summary": Question(
            "Where each rank's time goes: the verdict, one row per rank, and data-quality notes.", "folder", "ranks"
        ),
        "findings": Question("What to change, largest saving first, with evidence.", "folder", "top"),
        "tables": Question("The available tables: name, title, meaning of a row, key, number of rows.", "folder"),
        "table": Question(
            "Rows of one table, filtered (where: rank=0, wait_ns>1e6) and sorted by a column, largest first.",
            "folder name", "ranks steps where sort top",
        ),
        "steps": Question(
            "Each step of each rank, split into compute, exposed communication, copies and idle.",
            "folder", "ranks steps top",
        ),
        "why-waiting": Question(
            "Which ranks a rank waits for in communication, longest first, and why those are stragglers.",
            "folder", "ranks steps top",
        ),
        "inspect": Question(
            "GPU operations whose kernel or operator name contains a text, longest first.",
            "folder operation", "ranks steps top",
        ),
        "what-if": Question(
            "An average step replayed with changes, such as rank 7=peers, cpu none, operator aten::mm=2x.",
            "folder changes",
        ),
        "compare": Question(
            "What differs between two runs, per step: sentences, then one row per figure.", "base other", "top"
        ),
        "memory": Question("Device memory by rank: peaks of allocated and reserved memory.", "folder", "ranks top"),
    }
)  # fmt: skip
"""By the names of `verbs.VERBS`; each may also be given the `cursor` of the answer before."""
