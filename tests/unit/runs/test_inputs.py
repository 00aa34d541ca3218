import pytest

from distfms.errors import DataError
from distfms.runs.inputs import open_inputs
from distfms.runs.job_spec import build_spec


def opened(tmp_path, **data):
    section = {"path": str(tmp_path / "days"), "target": "y", **data}
    spec = build_spec({"name": "j", "method": "sequence", "data": section})
    return open_inputs(spec, tmp_path / "runs", print)


def test_times_that_can_be_read_in_two_ways(tmp_path):
    (tmp_path / "days").mkdir()
    for day in ("03/05/2024", "04/05/2024"):
        (tmp_path / "days" / f"{day[:2]}.csv").write_text(f"day,x,y\n{day},1,2\n")
    assert opened(tmp_path).inputs.train.n_rows == 2
    message = r"05/03/2026 as 5 March \(%d/%m/%Y\) or 03/05/2026 .*\. Write them as 2026-03-05\."
    with pytest.raises(DataError, match=message):
        opened(tmp_path, time="day")
    (tmp_path / "days" / "05.csv").write_text("day,x,y\n05/13/2024,1,2\n")
    assert opened(tmp_path, time="day").inputs.train.n_rows == 3
