"""Bytes of files before anybody knows what they hold: packed, in archives, far away, pickled by others."""
