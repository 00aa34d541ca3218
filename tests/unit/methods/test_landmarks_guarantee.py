"""What the theorems guarantee, against the sums in their proofs."""

import pytest

from distfms.methods.landmarks.guarantee import DELTA, guarantee
from tests.reference import landmarks as literal


@pytest.mark.parametrize("n_kept", [None, 50])
@pytest.mark.parametrize("bound", [1e-3, 2.0, 40.0])
def test_a_theorem_asks_for_rows_that_keep_what_it_guarantees_below_the_plain_error(bound, n_kept):
    found = guarantee(0.3, bound, 1.0, 500, 3000, n_kept)
    tau = None if n_kept is None else 0.1
    there = 0.3 + literal.excess(bound, 500, 3000, DELTA, tau)
    assert found["guaranteed"] == pytest.approx(there)
    assert found["vacuous"] == (there >= 1.0) == (bound > 1.0)
    d, n = found["landmarks"], found["rows"]
    asked = 0.3 + literal.excess(bound, d, n, DELTA, tau)
    assert asked <= 1.0
    if bound > 1.0:  # no more than needed
        assert asked == pytest.approx(1.0, abs=1e-3)


def test_where_no_number_of_rows_suffices():
    found = guarantee(1.1, 2.0, 1.0, 500, 3000, None)
    assert (found["vacuous"], found["landmarks"], found["rows"]) == (True, None, None)
    assert guarantee(0.5, 0.0, 1.0, 5, 5, 5)["guaranteed"] == 0.5
    assert guarantee(0.5, 1e300, 1.0, 5, 5, None)["landmarks"] is None
