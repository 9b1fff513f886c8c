"""Hosts that bind their GPUs, and why."""
