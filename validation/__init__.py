"""Simulation of the models and comparison of theory with simulation."""
