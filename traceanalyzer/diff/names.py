"""The names of the figures that runs are compared by. Made by `python -m tests.typed_names`."""

from typing import Literal

MetricName = Literal[
    "step_ns",
    "step_std_ns",
    "compute_ns",
    "exposed_transfer_ns",
    "exposed_wait_ns",
    "exposed_unmatched_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
    "opaque_ns",
    "idle_ns",
    "idle_sync_ns",
    "idle_data_ns",
    "idle_host_ns",
    "idle_launch_ns",
    "idle_unknown_ns",
    "idle_between_kernels_ns",
    "compute_pct",
    "exposed_comm_pct",
    "exposed_copy_pct",
    "idle_pct",
    "overlap_pct",
    "comm_ns",
    "comm_calls",
    "comm_bytes",
    "unprofiled_step_ns",
    "tokens_per_s",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
]
