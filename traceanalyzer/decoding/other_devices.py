"""Devices whose events are not read: by which categories a capture of them is known, and what it is called."""

import re

API_CALLS = re.compile(r"^(\w+)_(?:runtime|driver)$")
"""Categories of the calls of other devices: `xpu_runtime`, `mtia_runtime`, `privateuse1_runtime`, `npu_runtime`."""

FOREIGN = {
    "hpu_op": "a capture of HPU devices",
    "mtia_ccp_events": "a capture of MTIA devices",
    "mtia_workloadd": "a capture of MTIA devices",
    "mtia_insight": "a capture of MTIA devices",
    "xpu_scope_profiler": "a capture of XPU devices",
    "cuda_profiler_range": "a capture of CUPTI's range profiler, which counts but does not time kernels",
}
"""Categories of device events whose meaning is not Kineto's usual one: what such a capture is, by category."""

DEVICES = {"privateuse1": "PrivateUse1 devices, such as NPUs"}
"""What devices are called whose categories begin with something else; others are called by that, in capitals."""

OUT_OF_TREE = "privateuse1"
"""Begin of the categories of devices that PyTorch itself does not know, such as NPUs."""
