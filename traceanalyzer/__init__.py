"""Where each rank's time went in a multi-GPU job, from PyTorch-profiler and Nsight Systems traces."""

__version__ = "0.1.0"
