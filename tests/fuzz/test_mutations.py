"""The damage itself: what it puts into a structure is never shared between cases."""

import random

from tests.fuzz.mutations import ODD_VALUES, copied, value_mutated


def test_what_was_put_in_is_not_damaged_for_later_cases():
    """A shared piece would make a case depend on those before it, and could end up within itself."""
    before = copied(ODD_VALUES)
    value = [1, {"a": 2}]
    for seed in range(300):
        value = value_mutated(random.Random(seed), value)[:9] or [1, {"a": 2}]
    assert list(ODD_VALUES) == before
