"""Ridge and lasso regression from a few attributes of each example."""
