"""Where work runs; knows nothing of statistics or methods, it receives picklable callables.

Map-reduce as explicit Dask graphs with a fixed merge tree, executors for this machine and for Dask
and Ray clusters, pools of actors that hold state, the cache of partial results, retry rules and
memory projection. Importing it loads neither dask nor ray.
"""

from distfms.engine.base import ActorPool, Executor, PoolCounts
from distfms.engine.blas import single_threaded_blas
from distfms.engine.cache import PartialCache
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor, SerialPool
from distfms.engine.mapreduce import Reduction, map_reduce
from distfms.engine.memory import MemoryProjection, available_bytes, project, require
from distfms.engine.open import make_executor
from distfms.engine.retry import RetryPolicy

__all__ = [
    "ActorPool",
    "Executor",
    "LocalExecutor",
    "MemoryProjection",
    "PartialCache",
    "PoolCounts",
    "Reduction",
    "RetryPolicy",
    "SerialPool",
    "Unit",
    "available_bytes",
    "make_executor",
    "map_reduce",
    "project",
    "require",
    "single_threaded_blas",
]
