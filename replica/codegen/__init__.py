"""Printers: one per target, all from the same programs."""
