"""Many small collectives."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import tensor_parallel


def test_a_small_all_reduce_before_each_product_costs_its_latency():
    (found,) = said(tensor_parallel.many_scales(), "small_collectives")
    assert found.headline == "48 small all-reduces/step: latency-bound."
    assert found.why == "Rank 0's all-reduces of at most 1.05 MB take 803 µs/step, 16 B each on average."
    assert found.fix.startswith("Reduce one flattened tensor")
    assert found.leads


def test_buckets_are_not_small():
    assert not said(usual.ddp(ranks=2, steps=3), "small_collectives")
