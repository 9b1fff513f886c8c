"""Several runs in one process group: `several_runs.py LINES.json RESULTS.json`, a list of command lines in."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.extending import example
from traceanalyzer.runners.options import parse
from traceanalyzer.runners.strategies import STRATEGIES, strategy_named
from traceanalyzer.runners.train import train
from traceanalyzer.runners.world import choose_device, joined

# Makes AdamW's step depend on the gradients' scale: a sum in place of a mean then changes the losses.
ADAM_EPS = 0.1


# The strategy that docs/contributing/extending.md writes, under the name that it gives it.
STRATEGIES["flat_ddp"] = "flat_ddp.FlatDDP"
sys.modules["traceanalyzer.runners.strategies.flat_ddp"] = example("A training strategy")


def main(lines_path: str, results_path: str) -> None:
    results = []
    lines = json.loads(Path(lines_path).read_text())
    with joined(choose_device(parse(lines[0]).device), timeout_s=60) as world:
        for line in lines:
            config = replace(parse(line), adam_eps=ADAM_EPS)
            strategy_named(config.strategy).check(config, world.size)
            sys.stdout.write(" ".join(line) + "\n")
            record = train(config, world)
            out = str(Path(config.out).absolute())
            results.append(
                {"losses": record.losses, "parallel": record.parallel, "transfer": record.transfer, "out": out}
            )
        if world.rank == 0:
            Path(results_path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
