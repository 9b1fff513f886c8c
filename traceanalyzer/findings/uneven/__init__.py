"""Ranks and steps that differ, where no single wait tells it."""
