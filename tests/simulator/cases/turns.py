"""Hosts that launch in a loop what could be launched once."""

from tests.simulator.case import Case, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import turns

_LOOP = Fault("loop", 0, (0, 1))

TURNS: tuple[Case, ...] = (
    nobody("an average of weights, parameter by parameter",
            "per_tensor_work", turns.averaged, _LOOP, is_gained=True),
    nobody("pictures augmented one by one", "per_tensor_work",
            turns.augmented, _LOOP, is_gained=True),
    nobody("rows picked by a mask for each class", "per_tensor_work", turns.picked,
            _LOOP, is_gained=True),
    nobody("an average of weights, all at once", "", turns.averaged),
)  # fmt: skip
