"""Tests of who is late, and by what."""
