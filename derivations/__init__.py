"""The physics, declared: tasks, activations, classical problems."""
