"""What a GPU does with its time and memory: kernels, copies, allocations."""
