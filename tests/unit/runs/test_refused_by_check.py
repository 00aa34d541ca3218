"""What a run would refuse once it has read rows, `check` refuses before."""

import numpy as np
import pandas as pd
import pytest

from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare

N = 60
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "y"])


def prepared(frame, folder, method, target="y", **section):
    frame.to_parquet(folder / "rows.parquet")
    data = {"path": str(folder / "rows.parquet"), "target": target}
    return prepare(build_spec({"name": "it", "method": method, "data": data, method: section}))


def test_attributes_of_one_judgment_each(tmp_path):
    with pytest.raises(SpecError, match="Attributes a, b have one judgment of each object"):
        prepared(ROWS, tmp_path, "multiselect", budget=2)
    assert prepared(ROWS, tmp_path, "multiselect", budget=2, internal_variance={"a": 1.0, "b": 1.0})


@pytest.mark.parametrize("method", ["sequence", "landmarks"])
def test_a_target_of_texts_that_all_differ(method, tmp_path):
    money = ROWS.assign(price=[f"${1000 + k:,}.50" for k in range(N)])
    with pytest.raises(SpecError, match=r"no classes.*60 of 60.*`data.numbers: \[price\]`"):
        prepared(money, tmp_path, method, "price")
    names = ROWS.assign(name=[f"person {k}" for k in range(N)])
    with pytest.raises(SpecError, match=r"60 of the first 60 differ.*Name a column of classes"):
        prepared(names, tmp_path, method, "name")
    digits = ROWS.assign(digit=[str(k % 10) for k in range(N)])
    assert prepared(digits, tmp_path, method, "digit")
