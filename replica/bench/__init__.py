"""Measurements of this machine: nothing else depends on this package."""
