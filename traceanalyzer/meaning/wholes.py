"""What figures are of, in words: all that was recorded, its one complete step, or the mean of several.

`steps` is everywhere how many complete steps a figure is of; `None` of a capture without any.
"""


def whole(steps: int | None) -> str:
    """What is shorter by a gain."""
    return _said(steps, "the capture", "the step", "a mean step")


def step_or_capture(steps: int | None) -> str:
    """What has a length, and what a share is of."""
    return _said(steps, "the capture", "the step", "a step")


def within_whole(steps: int | None) -> str:
    """Words behind a time or a count: a rate is of several steps."""
    return _said(steps, "in all", "in the step", "a step")


def rate(steps: int | None) -> str:
    """The same where only a rate is to be told, with a blank before it."""
    return _said(steps, "", "", " a step")


def _said(steps: int | None, capture: str, one: str, several: str) -> str:
    return capture if steps is None else one if steps == 1 else several
