"""What tests of the methods share."""

import pytest

from distfms.engine.blas import single_threaded_blas


@pytest.fixture(autouse=True)
def _one_blas_thread():
    """Bits are promised for one BLAS thread, which the engine sees to."""
    with single_threaded_blas():
        yield
