"""Training again on data that grow, and putting the better model in place."""
