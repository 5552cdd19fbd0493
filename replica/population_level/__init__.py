"""Population level: the risk at infinite data, its best scale, and the Bayes risk."""
