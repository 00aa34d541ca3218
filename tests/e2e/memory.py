"""What the stages of a run take of memory, for tests."""

import gc
import tracemalloc

from distfms.runs.folder import RunFolder


class Peaks:
    """Most memory that each stage of a run has taken in this process, in bytes."""

    def __init__(self, monkeypatch, last):
        self.last = last
        self.bytes: dict[str, int] = {}
        monkeypatch.setattr(RunFolder, "write_stage", self._measured(RunFolder.write_stage))

    def _measured(self, write):
        def write_stage(folder, name, *rest):
            write(folder, name, *rest)
            if tracemalloc.is_tracing():
                self.bytes[name] = tracemalloc.get_traced_memory()[1]
                self.start()
            if name == self.last:
                tracemalloc.stop()  # it slows the stages that are of no interest

        return write_stage

    def start(self):
        gc.collect()
        tracemalloc.stop()
        tracemalloc.start()
