"""What the steps of a run take of memory, for tests."""

import gc
import tracemalloc

from distfms.runs.steps import Steps


class Peaks:
    """Most memory that each step of a run has taken in this process, in bytes."""

    def __init__(self, monkeypatch, last):
        self.last = last
        self.bytes: dict[str, int] = {}
        monkeypatch.setattr(Steps, "files", self._measured(Steps.files))

    def _measured(self, files):
        def measured(steps, name, make):
            done = files(steps, name, make)
            if tracemalloc.is_tracing():
                self.bytes[name] = tracemalloc.get_traced_memory()[1]
                self.start()
            if name == self.last:
                tracemalloc.stop()  # it slows the steps that are of no interest
            return done

        return measured

    def start(self):
        gc.collect()
        tracemalloc.stop()
        tracemalloc.start()
