"""Partial statistics as the cache keeps them."""

import numpy as np

from distfms.data.categories import Categories
from distfms.runs.context import decode_bundle, encode_bundle
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments


def test_bundles_come_back_as_they_were():
    rows = np.random.default_rng(0).normal(size=(3, 20))
    rows[1, 4] = np.nan
    moments = Folded((CoMoments.from_block(rows), CoMoments.empty(3)))
    levels = Folded((Categories({"ward": ("", "näh")}), Categories({})))
    bundle = Bundle({"moments": moments, "categories": levels})
    payload = encode_bundle(bundle)
    found = decode_bundle({"moments": CoMoments, "categories": Categories}, payload)
    before, after = bundle.to_arrays(), found.to_arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_array_equal(after[name], array)
    assert encode_bundle(found) == payload
