"""Baselines over time, as a page, as files and in the terminal."""
