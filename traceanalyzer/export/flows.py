"""Numbers of arrows, different for every launched operation of every rank and every collective."""

_OF_INSTANCES = 1 << 62

_RANK_BITS = 36
"""Operations of one rank are fewer than two to the power of this."""


def of_operation(rank: int, operation: int) -> int:
    """From a host's call to the GPU operation that it launched."""
    return ((rank + 1) << _RANK_BITS) + operation


def of_instance(instance: int) -> int:
    """From rank to rank of one collective, in the order in which they begin it."""
    return _OF_INSTANCES + instance


def is_of_instance(number: int) -> bool:
    """Which of the two it is."""
    return number >= _OF_INSTANCES
