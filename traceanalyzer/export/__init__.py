"""Traces in other tools' formats: these see events, not Results."""
