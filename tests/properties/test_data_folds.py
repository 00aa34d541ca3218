import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.data.rows.folds import assign_parts

plans = st.fixed_dictionaries(
    {
        "n_folds": st.sampled_from([0, 2, 3, 10]),
        "test": st.sampled_from([0.0, 0.2, 0.5]),
        "seed": st.integers(0, 2**63),
    }
)
keys = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=15),
    st.lists(st.text(max_size=12), min_size=1, max_size=15),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=15),
)


@settings(max_examples=60)
@given(keys=keys, plan=plans, data=st.data())
def test_a_key_has_one_part_whatever_the_order_and_the_cut(keys, plan, data):
    whole = assign_parts(keys, **plan)
    order = data.draw(st.permutations(range(len(keys))))
    cut = data.draw(st.integers(0, len(keys)))
    shuffled = [keys[i] for i in order]
    pieces = [piece for piece in (shuffled[:cut], shuffled[cut:]) if piece]
    parts = np.concatenate([assign_parts(piece, **plan) for piece in pieces])
    assert parts.tolist() == [whole[i] for i in order]
    for i, key in enumerate(keys):
        assert whole[keys.index(key)] == whole[i]


@settings(max_examples=25)
@given(plan=plans, start=st.integers(-(2**40), 2**40), as_text=st.booleans())
def test_parts_are_roughly_balanced(plan, start, as_text):
    n = 4000
    keys = np.arange(start, start + n)
    counts = np.bincount(
        assign_parts([f"id-{k}" for k in keys] if as_text else keys, **plan),
        minlength=max(plan["n_folds"], 1) + 1,
    )
    n_train = max(plan["n_folds"], 1)
    expected = np.full(n_train + 1, n * (1 - plan["test"]) / n_train)
    expected[-1] = n * plan["test"]
    # Seven standard deviations of a binomial count, so that no example of many fails by chance.
    spread = np.sqrt(expected * (1 - expected / n))
    assert (np.abs(counts - expected) <= 7 * spread + 1e-9).all()
