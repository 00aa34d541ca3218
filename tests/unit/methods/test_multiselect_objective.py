import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.multiselect.options import resolve_costs
from distfms.solve.buying import Problem, full_objective
from distfms.solve.purchases import select
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import build_problem, random_judgments, statistics


@pytest.mark.parametrize("seed", range(3))
def test_in_units_of_the_data_the_nearest_matrix_is_the_one_of_the_paper(seed):
    judgments, label, _ = random_judgments(seed, m=6, d=8)  # too few objects: not semi-definite
    judgments *= 10.0 ** np.arange(-1, 1, 0.25)[:, None]
    est = statistics(judgments, label).estimates()
    psd = literal.make_psd_in_data_units(est.external)
    problem = Problem.from_estimates(est, psd="data_units")
    np.testing.assert_allclose(problem.external, psd, rtol=1e-9, atol=1e-12 * psd.max())
    path = select(problem, 12)
    steps = literal.greedy(lambda r: literal.full_objective(est.b, est.v, psd, r), 8, 12)
    assert path.attributes.tolist() == steps
    in_deviations = Problem.from_estimates(est)
    assert not np.allclose(problem.external, in_deviations.external, rtol=1e-3)
    assert np.linalg.norm(psd - est.external) < np.linalg.norm(
        in_deviations.external - est.external
    )


@pytest.mark.parametrize("how", [{"psd": "none"}, {}])
def test_symmetric_part_of_an_external_covariance_counts(how):
    external = np.array([[2.0, 0.5, 0.1], [0.2, 2.0, 0.3], [0.1, 0.4, 2.0]])
    numbers = ([1.0, 0.5, 0.2], [0.1, 0.1, 0.1])
    problem = build_problem(*numbers, external, label_variance=4.0, **how)
    same = build_problem(*numbers, external.T, label_variance=4.0, **how)
    np.testing.assert_array_equal(problem.external, (external + external.T) / 2)
    np.testing.assert_array_equal(problem.external, same.external)
    assert full_objective(problem, [1, 2, 1]) == full_objective(same, [1, 2, 1])


def test_costs_by_name_and_glob():
    names = ("bp_high", "bp_low", "age")
    for given, expected in (
        ({"default": 5, "bp_*": 2, "bp_low": 3}, [2, 3, 5]),
        ({"age": 4}, [1, 1, 4]),
    ):
        np.testing.assert_array_equal(resolve_costs(given, names), expected)
    with pytest.raises(SpecError, match=r"`costs` names 'aeg', .* Did you mean 'age'"):
        resolve_costs({"aeg": 4}, names)
