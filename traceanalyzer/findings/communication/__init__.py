"""Collectives and messages: exposed, small, slow, not needed; experts' exchanges."""
