"""Streams, copies and the blocks of an offloaded model."""
