"""What a rule takes: names of Results, and limits."""

import inspect


def needed_by(rule):
    """The Results that it names."""
    return [one.name for one in inspect.signature(rule).parameters.values() if one.default is one.empty]


def limits_of(rule):
    """Its thresholds, with their defaults."""
    return {
        one.name: one.default for one in inspect.signature(rule).parameters.values() if one.default is not one.empty
    }
