"""Synthetic datasets in the manner of the papers, of any length, written with bounded memory.

``make(name, out, rows)`` writes shards; ``GENERATORS`` lists what there is. The rows depend on
(name, parameters, seed) only: the first thousand rows of a dataset are the same whatever its
length, its shards and the number of threads that made it.
"""

from distfms.data.synthetic.base import Generator, Recipe, generate
from distfms.data.synthetic.registry import GENERATORS, make

__all__ = ["GENERATORS", "Generator", "Recipe", "generate", "make"]
