"""Files in: formats, datasets and their partitions, column roles, folds, row and judgment batches.

Nothing here knows a method. A dataset is a fixed list of partitions (:mod:`.dataset`); roles say
what its columns are for (:mod:`.roles`); a batch (:mod:`.batches`, :mod:`.judgments`) is one
partition as arrays, rows ordered by cross-validation part (:mod:`.folds`). pyarrow is imported
with the modules that open files, elsewhere when first needed.
"""
