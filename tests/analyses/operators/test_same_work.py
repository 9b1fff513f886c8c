"""Which kernels do the same work: those of which all is recorded and alike, or at the same places of steps."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from traceanalyzer.analyses.operators.operator_tree import OperatorTree, same_work
from traceanalyzer.model.schema import NONE

SHAPES = {"Input Dims": [[8, 64], [64, 32]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
USUAL = {"name": "nvjet", "operator": "aten::mm", "grid": [132, 1, 1], "block": [384, 1, 1]}


@pytest.fixture
def works(tmp_path):
    """Numbers of the kernels of a rank's steps, a list a step, from what is unlike `USUAL` of each."""

    def found(*steps, shapes=SHAPES, has_steps=True):
        events, number = [], 0
        for place, launched in enumerate(steps):
            begin = 1_000 * place
            if has_steps:
                events.append(host(begin, 990, name=f"ProfilerStep#{place}", cat="user_annotation"))
            for more in launched:
                number, begin = number + 1, begin + 20 + more.get("later", 0)
                told = USUAL | {"shapes": shapes} | more
                events += [
                    host(begin, 10, name=told["operator"], **(told["shapes"] or {})),
                    host(begin + 2, 5, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number),
                    kernel(begin + 8, 9, name=told["name"], correlation=number, **{
                        name: told[name] for name in ("grid", "block") if told[name]
                    }),
                ]  # fmt: skip
        (trace,) = ta.load(write(tmp_path / "a.json", document(events))).ranks
        return same_work(trace, OperatorTree.of(trace)).tolist()

    return found


@pytest.mark.parametrize(
    "other",
    [
        {"name": "nvjet_2"}, {"grid": [66, 1, 1]}, {"block": [256, 1, 1]}, {"operator": "aten::addmm"},
        {"shapes": SHAPES | {"Input Dims": [[8, 128], [128, 32]]}},
        {"shapes": SHAPES | {"Input type": ["float", "float"]}},
    ],
    ids=["name", "grid", "block", "operator", "shapes", "element types"],
)  # fmt: skip
def test_what_differs_in_one_of_these_is_other_work(works, other):
    first, unlike, last = works([{}, other, {}], has_steps=False)
    assert first == last != unlike
    assert NONE not in (first, unlike)
