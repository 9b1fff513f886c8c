"""Collectives and messages: matched over ranks, split into transfer and wait, and who came late."""
