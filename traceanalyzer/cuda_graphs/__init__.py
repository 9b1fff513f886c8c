"""Replayed CUDA graphs: what captures recorded beside them tell of the operators and ranges inside."""
