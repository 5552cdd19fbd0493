"""State evolution of the Bayes-optimal learner: fixed points, branches, transitions."""
