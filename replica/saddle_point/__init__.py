"""Saddle points: nodes, proximal minimisation, fixed point, errors, stability."""
