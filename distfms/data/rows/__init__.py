"""From partitions to batches of rows: roles of columns, folds, judgments."""
