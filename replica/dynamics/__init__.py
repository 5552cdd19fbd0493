"""The overlaps in time: one-pass SGD and gradient flow."""
