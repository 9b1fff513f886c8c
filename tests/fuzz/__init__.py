"""Damaged and hostile inputs, made by the thousand: what becomes of each, by kind of input."""
