"""Snapshots as `torch.cuda.memory._dump_snapshot` writes them, tiny or long."""

import pickle

BASE = 1 << 40


def frames(*lines):
    return [{"filename": file, "line": line, "name": name} for file, line, name in lines]


KEEP = (("torch/nn/functional.py", 9, "linear"), ("model.py", 7, "forward"), ("train.py", 20, "<module>"))
STATE = (("torch/optim/adam.py", 178, "_init_group"), ("train.py", 22, "<module>"))


class History:
    """Events in order; blocks that are alive at the end become the snapshot's."""

    def __init__(self):
        self.events, self.blocks, self.now, self.next = [], {}, 1_700_000_000_000_000, BASE
        self.annotations = []

    def event(self, action, addr, size, lines=(), **others):
        self.now += 10
        self.events.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.now, "compile_context": "N/A",
                            "user_metadata": "", "frames": frames(*lines)} | others)  # fmt: skip

    def alloc(self, size, lines=KEEP):
        addr, self.next = self.next, self.next + max(512, size)
        self.event("alloc", addr, size, lines)
        self.blocks[addr] = (size, lines)
        return addr

    def free(self, addr):
        size, lines = self.blocks.pop(addr)
        self.event("free_requested", addr, size, lines)
        self.event("free_completed", addr, size, lines)

    def step(self):
        self.now += 10
        self.annotations.append(
            {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": self.now}
        )

    def snapshot(self, reserved=1 << 30):
        blocks = [
            {
                "address": addr,
                "size": size,
                "requested_size": size,
                "state": "active_allocated",
                "frames": frames(*lines),
            }
            for addr, (size, lines) in self.blocks.items()
        ]
        used = sum(block["size"] for block in blocks)
        reserved = max(reserved, used)
        blocks.append(
            {"address": self.next, "size": reserved - used, "requested_size": 0, "state": "inactive", "frames": []}
        )
        segment = {"device": 0, "address": BASE, "total_size": reserved, "allocated_size": used, "active_size": used, "stream": 0,
                   "segment_type": "large", "is_expandable": False, "blocks": blocks, "frames": []}  # fmt: skip
        return {"segments": [segment], "device_traces": [self.events, []], "allocator_settings": {"expandable_segments": False},
                "external_annotations": self.annotations}  # fmt: skip


def write(path, snapshot, protocol=4):
    path.write_bytes(pickle.dumps(snapshot, protocol=protocol))
    return path
