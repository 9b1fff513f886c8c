"""A second lot of jobs written down with their truth, and committed, before any report of one was seen."""

from dataclasses import replace

from tests.simulator import second_jobs as second
from tests.simulator import unseen_host_jobs as hosts
from tests.simulator import unseen_jobs as jobs
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.noise import Noise
from tests.simulator.program import Job
from tests.simulator.unseen_cases import with_noise

_PACES = (1.0, 1.2, 1.1, 1.3, 1.05, 1.5, 1.0, 1.15, 1.4, 1.0, 1.25, 1.1, 1.0, 1.35, 1.2, 1.05)
_SECOND_NODE = (1.0,) * 8 + (1.3,) * 8


def _healthy(
    name: str, job: object, says: str = "", how: Capture | None = None, first: int = 0, **options: object
) -> Case:
    return Case(name, lambda own: job(faults=own, **options), (), Truth(says=says), how or Capture(), first)  # type: ignore[operator]  # options are the job's


def _on_two_nodes(**options: object) -> Job:
    job = with_noise(usual.ddp, Noise(31, 0.2, 0.03, 0.1, _SECOND_NODE))(**options)
    return replace(job, hosts=tuple(f"node{rank // 8}" for rank in range(16)))


SECOND_CASES: tuple[Case, ...] = (
    case_of("boxes sorted out on a slower CPU", second.boxes, Fault("nms", 4 * MS, (1,)), "nms", cause="host"),
    case_of("environments of a rank are slower", second.environments, Fault("env", 5 * MS, (0,)), "envs.py(60): step", cause="host"),
    case_of("a rank averages the weights on its GPU", second.averaged, Fault("ema", 3 * MS, (0,)), "lerp", cause="compute"),
    case_of("garbage once in a stage, two replicas", second.stages_of_tensors, Fault("gc", 14 * MS, (2,), (2,)), "gc.collect", steps=5),
    case_of("late in the last microbatch but one", second.swallowed, Fault("compute", 3 * MS, (2,)), "mm", noise=Noise(32, paces=_PACES)),
    case_of("attention by heads, a GPU throttled", second.by_heads, Fault("throttle", 0, (6,), None, 1.3), "the same kernels take 1.3"),
    case_of("throttled, and once a checkpoint", with_noise(usual.fsdp, Noise(33, 0.2, 0.03, 0.1, _PACES)), Fault("throttle", 0, (1,), None, 1.5),
            "the same kernels take 1.5", steps=6, left=(Fault("save", 4 * MS, (0,), (3,)),), others=(0,)),
    case_of("a slow card behind a noisy network", jobs.two_nodes, Fault("link", 5 * MS, (3, 7)), "all-reduce among ranks 3 and 7",
            noise=Noise(34, wire=0.3)),
    case_of("a loader in the first recorded step, clocks apart", with_noise(usual.tp_dp, Noise(35, 0.2, 0.03, 0.1)),
            Fault("data", 8 * MS, (5,), (2,)), LOADER, tensor=2, data=4, steps=6, first=2,
            how=Capture(offset_ns={1: 20 * MS, 5: -15 * MS, 7: 3 * MS})),
    case_of("a loader on the node of slower hosts", _on_two_nodes, Fault("data", 7 * MS, (11,)), LOADER, ranks=16, steps=4, layers=5),
    Case("garbage of three ranks in turn", lambda own: with_noise(usual.fsdp, Noise(36, 0.2, 0.03, 0.1))(ranks=4, steps=9, faults=own),
         tuple(Fault("gc", 8 * MS, (step % 3,), (step,)) for step in range(9)), Truth((0, 1, 2), "host", "gc.collect")),
    _healthy("healthy, attention by heads", second.by_heads, noise=Noise(37, 0.25, 0.04, 0.15, _PACES)),
    _healthy("healthy, environments", second.environments, "host|collect|step|aten|cudaStreamSynchronize", noise=Noise(38, 0.2, 0.03, 0.1)),
    _healthy("healthy, interleaved with noise", with_noise(usual.pipelined, Noise(39, 0.25, 0.03, 0.1, _PACES)), "ipeline|tage", chunks=2, steps=3),
    _healthy("healthy, 16 ranks of experts, two steps", jobs.capped_experts, ranks=16, steps=3, first=1,
             noise=Noise(40, 0.3, 0.05, 0.15, _PACES)),
    _healthy("healthy, accumulated, two steps", second.swallowed, noise=Noise(41, 0.3, 0.04, 0.1, _PACES)),
    _healthy("healthy, adapters, hosts differ a little", hosts.adapted, "host", noise=Noise(42, 0.3, 0.03, 0.1, (1.0, 1.1, 1.05, 1.15)), steps=3),
    _healthy("healthy, tensor parallel, a file missing", with_noise(usual.tp_dp, Noise(43, 0.2, 0.03, 0.2, _PACES)), tensor=4, data=2,
             how=Capture(missing=(6,))),
    _healthy("healthy, averaged on none", second.averaged, noise=Noise(44, 0.3, 0.05, 0.2, _PACES), how=Capture(offset_ns={2: 9 * MS})),
)  # fmt: skip
