"""Public names have types for editors and type checkers."""

import pytest
from mypy import api

import distfms
from tests.architecture.stubs import STUB, stub

EXAMPLE = """
import numpy as np
from distfms import GroupSequencer, LandmarkRegressor
model = GroupSequencer(groups={"a": ["x", "y"]}, ridge=0.1, random_state=3)
model.fit(np.ones((3, 2)), np.ones(3))
LandmarkRegressor(landmarks="many")
reveal_type(model)
"""


def test_the_stub_is_that_of_the_options():
    assert STUB.read_text() == stub(), "run python -m tests.architecture.stubs"
    assert all(f"class {name}(" in stub() or f" as {name}" in stub() for name in distfms._PUBLIC)


@pytest.mark.slow
def test_mypy_knows_the_parameters(tmp_path):
    (tmp_path / "example.py").write_text(EXAMPLE)
    told, _, code = api.run([str(tmp_path / "example.py"), "--cache-dir", str(tmp_path / "cache")])
    assert code == 1
    assert 'Argument "landmarks" to "LandmarkRegressor" has incompatible type' in told
    assert 'Revealed type is "distfms.GroupSequencer"' in told
    assert "Found 1 error" in told
