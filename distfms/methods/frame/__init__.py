"""What all methods share: the contract, steps on moments and rows, folds, tuning, passes."""
