import pyarrow.parquet as pq
import pytest

from distfms.data.files.builtin import builtin_table
from distfms.errors import DataError
from distfms.runs.inputs import open_inputs
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare
from distfms.spec import parse_yaml


def opened(tmp_path, **data):
    section = {"path": str(tmp_path / "days"), "target": "y", **data}
    spec = build_spec({"name": "j", "method": "sequence", "data": section})
    inputs, _ = open_inputs(spec, tmp_path / "runs", print)
    return inputs


def test_times_that_can_be_read_in_two_ways(tmp_path):
    (tmp_path / "days").mkdir()
    for day in ("03/05/2024", "04/05/2024"):
        (tmp_path / "days" / f"{day[:2]}.csv").write_text(f"day,x,y\n{day},1,2\n")
    assert opened(tmp_path).train.n_rows == 2
    message = r"05/03/2026 as 5 March \(%d/%m/%Y\) or 03/05/2026 .*\. Write them as 2026-03-05\."
    with pytest.raises(DataError, match=message):
        opened(tmp_path, time="day")
    (tmp_path / "days" / "05.csv").write_text("day,x,y\n05/13/2024,1,2\n")
    assert opened(tmp_path, time="day").train.n_rows == 3


LONG = {"object": "o", "attribute": "a", "value": "v", "label": "y"}


@pytest.mark.parametrize(
    ("method", "section", "roles"),
    [
        ("landmarks", {"builtin": "wine"}, (("cultivar",), "sample")),
        ("multiselect", {"long": LONG}, (("y",), "o")),
        ("multiselect", {"long": {**LONG, "label_from": "score"}}, (("y_score",), "o")),
    ],
)
def test_the_spec_of_a_run_has_the_section_that_the_job_reads_by(tmp_path, method, section, roles):
    path = tmp_path / "long.csv"
    lines = [f"{o},{a},{o % 5 + k},{o % 3}" for o in range(30) for a in "xy" for k in range(3)]
    path.write_text("\n".join(["o,a,v,score", *lines]) + "\n")
    named = {} if "builtin" in section else {"path": str(path)}
    options = {"budget": 2} if method == "multiselect" else {}
    content = {"name": "j", "method": method, "data": {**named, **section}, method: options}
    prepared = prepare(build_spec({**content, "output": str(tmp_path / "runs")}))
    data = prepared.spec.data
    assert data is prepared.job.inputs.section
    assert (data.target, data.id, data.folds) == (*roles, 5)
    again = prepare(build_spec(parse_yaml(prepared.spec.to_yaml(), "spec.yaml")))
    assert again.identity == prepared.identity


def test_embedded_data_may_stand_beside_rows_without_labels(tmp_path):
    pq.write_table(builtin_table("wine"), tmp_path / "wine.parquet")
    content = {"name": "j", "method": "landmarks", "output": str(tmp_path / "runs")}
    data = {"builtin": "wine", "unlabelled_path": str(tmp_path / "wine.parquet")}
    job = prepare(build_spec({**content, "data": data})).job
    assert job.inputs.unlabelled.n_rows == job.inputs.train.n_rows == 178
