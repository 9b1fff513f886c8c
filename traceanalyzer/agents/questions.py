"""What can be asked, in one sentence each: what help and assistants are shown. It imports nothing, so help is quick."""

from collections.abc import Mapping
from types import MappingProxyType

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "summary": "Where each rank's time went: the verdict, a row a rank, and what to know before trusting it.",
        "findings": "What to change, most to gain first, each with its evidence.",
        "tables": "Which tables there are: name, title, what a row is, key, rows.",
        "table": "Rows of one table; where such as rank=0 or wait_ns>1e6, sort by a column, largest first.",
        "steps": "Each step of each rank: its window, split into compute, exposed communication, copies and idle.",
        "why-waiting": "For whom a rank waited inside communication, longest first, and what made those ranks late.",
        "inspect": "GPU operations of a rank whose kernel or operator name contains a text, longest first.",
        "what-if": "A mean step replayed with changes, such as rank 7=peers, host none, operator aten::mm=2x.",
        "compare": "What differs between two runs, a step: sentences first, then a row for each figure.",
        "memory": "Device memory by rank: peaks of what was allocated and reserved.",
    }
)
"""Names of `verbs.VERBS`."""
