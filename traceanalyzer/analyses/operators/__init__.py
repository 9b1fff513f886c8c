"""Operators and modules: their tree, time, shapes and arithmetic."""
