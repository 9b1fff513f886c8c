"""Streams and copies."""
