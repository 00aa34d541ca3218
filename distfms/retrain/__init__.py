"""Training again on data that grow, and promoting the better model."""
