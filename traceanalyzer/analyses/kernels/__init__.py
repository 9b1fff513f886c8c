"""Kernels by name, graphs, and what their GPU could do."""
