"""The box `Use this model` of a report: its command and its Python work as they stand."""

import re
import shlex
from html import unescape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.cli import main
from distfms.runs.driver import run_job
from distfms.runs.job_spec import load_spec

RNG = np.random.default_rng(3)
X = RNG.normal(size=(120, 3))
Y = X @ [2.0, 1.0, 0.0] + 0.1 * RNG.normal(size=120)


@pytest.mark.parametrize("method", ["sequence", "landmarks", "attribute_efficient", "multiselect"])
def test_commands_and_python_work_as_they_stand(method, tmp_path, monkeypatch):
    text = "a;b;c;y\n" + "".join(
        f"{';'.join(str(v).replace('.', ',') for v in (*row, y))}\n"
        for row, y in zip(X, Y, strict=True)
    )
    data = tmp_path / "the data.csv"
    data.write_text(text)
    section = {"multiselect": "budget: 4", "attribute_efficient": "attributes_per_example: 2"}
    spec = tmp_path / "job.yaml"
    if method == "multiselect":
        data = data.with_suffix(".parquet")
        judged = {
            name: (X[:, [i]] + RNG.normal(size=(120, 3))).tolist() for i, name in enumerate("abc")
        }
        pq.write_table(pa.table({**judged, "y": Y}), data)
    spec.write_text(
        f"name: n\nmethod: {method}\ndata: {{path: {str(data)!r}, target: y, test: 0.2}}\n"
        f"{method}: {{{section.get(method, '')}}}\noutput: {{path: {str(tmp_path / 'runs')!r}}}\n"
    )
    page = (run_job(load_spec(spec)).folder / "report.html").read_text()
    assert ".kept" not in page
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command, python = map(unescape, re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.S)[:2])
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command.replace("\\\n", ""))[1:])
    assert ended.value.code == 0
    scope = {}
    exec(python.replace("model.predict(", "found = model.predict("), scope)
    assert scope["found"].equals(pq.read_table("predictions.parquet"))
    assert re.search(r"# Or a frame or mapping with .*a.*", python)


def test_no_text_names_files_that_only_distfms_knows(tmp_path, monkeypatch, capsys):
    """Judgments in long form are named by their own file; embedded data by none."""
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "private"))
    data = tmp_path / "ratings.csv"
    rows = [f"o{o},{a},{round(X[o, k], 3)}" for o in range(120) for k, a in enumerate("abc")] * 2
    data.write_text("item,question,score\n" + "\n".join(rows))
    long = "{object: item, attribute: question, value: score, label: c}"
    sections = {
        f"data: {{path: {str(data)!r}, long: {long}}}": shlex.quote(str(data)),
        "data: {builtin: digits, options: {}}": "new_rows.parquet",
    }
    for number, (section, named) in enumerate(sections.items()):
        spec = tmp_path / f"{number}.yaml"
        out = f"output: {{path: {str(tmp_path / 'runs')!r}}}"
        text = (
            f"name: n{number}\nmethod: multiselect\n{section}\nmultiselect: {{budget: 4}}\n{out}\n"
        )
        spec.write_text(text)
        page = (run_job(load_spec(spec), say=print).folder / "report.html").read_text()
        assert f"  {named} \\\n  --out predictions.parquet" in unescape(page)
        assert "/private/" not in page + capsys.readouterr().out
        assert ".kept" not in page
    assert not (tmp_path / "private").exists()
