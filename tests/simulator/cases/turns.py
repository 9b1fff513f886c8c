"""Hosts that launch in a loop what could be launched once."""

from tests.simulator.case import HEALTHY, Case, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import turns

_LOOP = Fault("loop", 0, (0, 1))

TURNS: tuple[Case, ...] = (
    nobody("an average of weights, parameter by parameter",
            r"host launches 300 operations a step tensor by tensor in a loop of 150 turns \(update_average: aten::mul_, "
            r"aten::add_\)", turns.averaged, _LOOP, is_gained=True),
    nobody("pictures augmented one by one", r"host launches 240 operations a step in a loop of 48 turns \(aten::flip",
            turns.augmented, _LOOP, is_gained=True),
    nobody("rows picked by a mask for each class", r"in a loop of 30 turns \(aten::nonzero, aten::index", turns.picked,
            _LOOP, is_gained=True),
    nobody("an average of weights, all at once", HEALTHY + "|ommunication|ll-reduce", turns.averaged),
)  # fmt: skip
