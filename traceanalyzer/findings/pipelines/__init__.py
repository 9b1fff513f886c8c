"""Stages and schedules."""
