"""Pipeline stages: shape, schedule, bubble."""
