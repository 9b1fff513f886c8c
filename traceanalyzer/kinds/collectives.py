"""The field's names of collectives, and what holds of them."""

import re

# Order matters: "reduce_scatter" and "all_reduce" both contain "reduce".
_WORDS = (
    ("all_reduce", re.compile(r"all_?reduce|cross_device_reduce|one_shot|two_shot|multimem_red", re.IGNORECASE)),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all_gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all_to_all", re.compile(r"all_?to_?all|all2all", re.IGNORECASE)),
    ("send_recv", re.compile(r"send_?recv|isend_irecv", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast|bcast", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce", re.IGNORECASE)),
    ("scatter", re.compile(r"scatter", re.IGNORECASE)),
    ("gather", re.compile(r"gather", re.IGNORECASE)),
    ("send", re.compile(r"send", re.IGNORECASE)),
    ("recv", re.compile(r"recv|receive", re.IGNORECASE)),
)

EXPERTS = ("ep_dispatch", "ep_combine")
"""Tokens to the experts that they are for, and back: what each rank sends differs from step to step."""

COLLECTIVES = (*(name for name, _ in _WORDS), *EXPERTS, "ep_notify", "rma")
"""`ep_notify`: ranks tell each other how many tokens will come; `rma`: one-sided puts and gets."""

ROOTED = ("broadcast", "reduce", "scatter", "gather")
"""Collectives with one root: their ranks do not wait alike."""

POINT_TO_POINT = ("send", "recv", "send_recv")

MESSAGES = "messages"
"""What point-to-point operations are together: one end's send is the other end's receive."""

CPU_BACKENDS = ("gloo:", "mpi:")
"""With what names of collectives begin that the host's processors carry out."""


def collective(name: str | None) -> str | None:
    """Field's name of a collective: `all_reduce`, `all_gather`, `send`, …; `None` when the name holds none.

    Takes PyTorch's names (`_allgather_base`), NCCL's functions (`ncclAllReduce`) and kernels
    (`ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`). A fused send/receive kernel is `send_recv`.
    """
    if not name:
        return None
    head = name.split("(", 1)[0]
    return next((field_name for field_name, pattern in _WORDS if pattern.search(head)), None)
