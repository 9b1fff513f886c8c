"""Stragglers: what each rank's steps need, and the episodes in which some ranks need more."""
