"""Jobs of one GPU, or of several that exchange nothing."""

from tests.simulator.case import Case

ONE_GPU: tuple[Case, ...] = (
)  # fmt: skip
