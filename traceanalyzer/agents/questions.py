"""The questions that can be asked, one sentence each, for help and for assistants. Imports nothing, so help is fast."""

from collections.abc import Mapping
from types import MappingProxyType

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "summary": "Where each rank's time goes: the verdict, one row per rank, and data-quality notes.",
        "findings": "What to change, largest saving first, with evidence.",
        "tables": "The available tables: name, title, meaning of a row, key, number of rows.",
        "table": "Rows of one table, filtered (where: rank=0, wait_ns>1e6) and sorted by a column, largest first.",
        "steps": "Each step of each rank, split into compute, exposed communication, copies and idle.",
        "why-waiting": "Which ranks a rank waits for in communication, longest first, and why those are stragglers.",
        "inspect": "GPU operations whose kernel or operator name contains a text, longest first.",
        "what-if": "An average step replayed with changes, such as rank 7=peers, host none, operator aten::mm=2x.",
        "compare": "What differs between two runs, per step: sentences, then one row per figure.",
        "memory": "Device memory by rank: peaks of allocated and reserved memory.",
    }
)
"""Names of `verbs.VERBS`."""
