"""Ranks that others wait for, and what is said of them."""
