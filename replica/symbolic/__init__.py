"""Symbolic objects that SymPy lacks: token sums, data averages, minima, replica blocks."""
