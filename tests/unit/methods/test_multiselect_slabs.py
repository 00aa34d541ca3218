import numpy as np
import pytest

from distfms.solve import purchases as greedy
from distfms.solve.buying import Purse
from distfms.solve.purchases import FullState
from tests.reference.multiselect_cases import random_problem


@pytest.fixture
def small_slabs(monkeypatch):
    monkeypatch.setattr(greedy, "SLAB_ATTRIBUTES", 8)


def test_what_is_sent_does_not_grow_with_the_number_of_attributes(small_slabs):
    problem = random_problem(1, d=64)
    state = FullState(problem)
    for bought in range(20):
        offered = state._ask("offers", state.objective, Purse(0.0, 100.0, False))
        assert all(len(offers) <= 1 for offers in offered)
        state.buy(int(np.argmin(state.repeats)))
        assert sum(change.q.size for change in state._changes) == bought + 1
