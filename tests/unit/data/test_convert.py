from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distfms.data.convert import ConversionReport, Converter
from distfms.data.pivot import SortedRuns
from distfms.data.storage import delete_unused
from distfms.errors import DataError
from tests.reference.long_form import pivot

ROLES: dict[str, Any] = {"object": "thing", "attribute": "question", "value": "answer"}

Row = tuple[Any, str, float | None]


def long_table(rows: list[Row], **more: list[Any]) -> pa.Table:
    things, questions, answers = zip(*rows, strict=True)
    return pa.table(
        {
            "question": pa.array(questions, pa.string()),
            "thing": list(things),
            "answer": pa.array(answers, pa.float64()),
            **more,
        }
    )


def write_long(path: Path, rows: list[Row], **more: list[Any]) -> Path:
    pq.write_table(long_table(rows, **more), path)
    return path


def random_rows(n: int, *, text_ids: bool = False, seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    things = rng.zipf(1.5, n) % 97 - 20
    ids = [f"ü{t}" for t in things] if text_ids else things.tolist()
    questions = rng.choice(["tall", "old", "near", "loud"], n).tolist()
    return list(zip(ids, questions, rng.integers(0, 9, n).astype(float).tolist(), strict=True))


def wide(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder).to_pylist()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def convert(source: Any, out: Path, *, overwrite: bool = False, **options: Any) -> ConversionReport:
    return Converter(source, **options).write(out, overwrite=overwrite)


@pytest.mark.parametrize("text_ids", [False, True])
@pytest.mark.parametrize("options", [{}, {"label": "old", "max_judgments": 2, "worker": "who"}])
def test_memory_bound_does_not_change_a_byte(
    tmp_path: Path, text_ids: bool, options: dict[str, Any]
) -> None:
    rows = random_rows(4000, text_ids=text_ids)
    workers = [f"w{j}" for j in range(4000)]
    write_long(tmp_path / "a.parquet", rows[:1500], who=workers[:1500])
    write_long(tmp_path / "b.parquet", rows[1500:], who=workers[1500:])
    reports, written = [], []
    for memory_bytes in (2**30, 300_000, 40_000):
        out = tmp_path / f"out-{memory_bytes}"
        given = {**ROLES, **options, "memory_bytes": memory_bytes}
        converter = Converter(str(tmp_path / "?.parquet"), **given)
        reports.append(converter.write(out, rows_per_shard=20))
        written.append(contents(out))
    assert [report.n_ranges > k for report, k in zip(reports, (0, 1, 9), strict=True)] == [True] * 3
    assert reports[0].n_ranges == 1
    assert written[0] == written[1] == written[2]
    assert len(written[0]) > 3
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    if not options:
        cells = pivot(rows)
        assert {row.pop("thing"): row for row in wide(out)} == {
            thing: {name: of.get(name, []) for name in ("loud", "near", "old", "tall")}
            for thing, of in cells.items()
        }
        assert reports[0].n_empty_cells == sum(4 - len(of) for of in cells.values())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-3, 3),
            st.sampled_from(["a", "b"]),
            st.one_of(st.none(), st.floats(-1e6, 1e6)),
        ),
        min_size=1,
        max_size=40,
    ),
    memory_bytes=st.sampled_from([400, 2000, 10**6]),
)
def test_any_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], memory_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source = write_long(folder / "long.parquet", rows)
    expected = pivot(rows)
    if not expected:
        with pytest.raises(DataError):
            convert(source, folder / "out", **ROLES, memory_bytes=memory_bytes)
        return
    report = convert(source, folder / "out", **ROLES, memory_bytes=memory_bytes)
    assert report.n_without_value == sum(value is None for *_, value in rows)
    found = {row.pop("thing"): row for row in wide(folder / "out")}
    assert list(found) == list(expected)
    for thing, cells in expected.items():
        assert {name: values for name, values in found[thing].items() if values} == cells


def test_csv_in_several_files_reads_as_parquet_does(tmp_path: Path) -> None:
    rows = random_rows(500)
    (tmp_path / "csv").mkdir()
    for name, part in {"1.csv": rows[:200], "2.csv": rows[200:]}.items():
        with (tmp_path / "csv" / name).open("w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["answer", "thing", "extra", "question"])
            writer.writerows([answer, thing, "x", question] for thing, question, answer in part)
    convert(tmp_path / "csv", tmp_path / "from-csv", **ROLES)
    source = write_long(tmp_path / "long.parquet", rows)
    convert(source, tmp_path / "from-parquet", **ROLES)
    assert contents(tmp_path / "from-csv") == contents(tmp_path / "from-parquet")


def test_label_is_the_mean_of_an_attribute(tmp_path: Path) -> None:
    rows: list[Row] = [(2, "a", 1), (1, "y", 4), (1, "a", 2), (1, "y", 7), (2, "b", 5), (3, "y", 1)]
    source = write_long(tmp_path / "long.parquet", rows)
    report = convert(source, tmp_path / "out", **ROLES, label="y")
    assert wide(tmp_path / "out") == [
        {"thing": 1, "y": 5.5, "a": [2.0], "b": []},
        {"thing": 3, "y": 1.0, "a": [], "b": []},
    ]
    assert report.n_unlabelled == 1
    assert report.n_judgments == 1
    assert report.attributes == ("a", "b")
    saved = json.loads((tmp_path / "out" / "_conversion.json").read_text())
    assert saved["n_unlabelled"] == 1
    assert saved["label"] == "y"


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_label_from_a_table(tmp_path: Path, form: str) -> None:
    rows: list[Row] = [(5, "a", 1), (1, "a", 2), (4, "a", 3)]
    source = write_long(tmp_path / "long.parquet", rows)
    labels = tmp_path / f"labels.{form}"
    if form == "csv":
        labels.write_text("thing,score\n9,90\n1,10\n5,\n4,40.5\n")
    else:
        table = pa.table({"thing": [9, 1, 5, 4], "score": [90.0, 10.0, None, 40.5]})
        pq.write_table(table, labels)
    report = convert(source, tmp_path / "out", **ROLES, labels=labels, label="score")
    assert wide(tmp_path / "out") == [
        {"thing": 1, "score": 10.0, "a": [2.0]},
        {"thing": 4, "score": 40.5, "a": [3.0]},
    ]
    assert (report.n_unlabelled, report.n_unjudged_labels, report.label) == (1, 1, "score")


def test_label_next_to_the_judgments(tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", 1), (1, "y", 3), (2, "y", 4), (2, "a", 5)]
    source = write_long(tmp_path / "long.parquet", rows, gold=[7, 8, 9, 10], fixed=[1, 1, 2, 2])
    convert(source, tmp_path / "g", **ROLES, label="y", label_from="gold")
    assert wide(tmp_path / "g") == [
        {"thing": 1, "y_gold": 8.0, "a": [1.0], "y": [3.0]},
        {"thing": 2, "y_gold": 9.0, "a": [5.0], "y": [4.0]},
    ]
    convert(source, tmp_path / "f", **ROLES, label="fixed", label_from="column")
    assert [row["fixed"] for row in wide(tmp_path / "f")] == [1.0, 2.0]
    with pytest.raises(DataError, match="object 1 has two labels in column 'gold'"):
        convert(source, tmp_path / "e", **ROLES, label="gold", label_from="column")


def test_drawn_judgments_are_uniform_and_seeded(tmp_path: Path) -> None:
    rows: list[Row] = [(i, a, float(j)) for i in range(2000) for a in "ab" for j in range(5)]
    source = write_long(tmp_path / "long.parquet", rows)
    drawn = {}
    for seed in (0, 1):
        out = tmp_path / str(seed)
        convert(source, out, **ROLES, max_judgments=2, seed=seed)
        drawn[seed] = pq.read_table(out)
    first = np.array(drawn[0]["a"].to_pylist())
    assert first.shape == (2000, 2)
    assert np.all(first[:, 0] < first[:, 1])  # source order
    # Each of 10 pairs is expected 200 times, with a standard deviation of 13.4.
    pairs = np.bincount((first[:, 0] * 5 + first[:, 1]).astype(int), minlength=25)
    assert np.all(np.abs(pairs[pairs > 0] - 200) < 5 * 13.4)
    assert np.count_nonzero(pairs) == 10
    for other in (drawn[0]["b"], drawn[1]["a"]):
        same = np.mean(np.all(first == np.array(other.to_pylist()), axis=1))
        assert same == pytest.approx(0.1, abs=0.05)


def test_duplicates(tmp_path: Path) -> None:
    rows: list[Row] = [(1, "a", 1), (1, "a", 2), (1, "b", 3), (1, "a", 4), (1, "a", 5)]
    who = ["ann", "bob", "ann", "ann", None]
    source = write_long(tmp_path / "long.parquet", [*rows, (1, "a", 6)], who=[*who, None])

    def converted(name: str, duplicates: Any) -> tuple[ConversionReport, list[float]]:
        out = tmp_path / name
        report = convert(source, out, **ROLES, worker="who", duplicates=duplicates)
        return report, wide(out)[0]["a"]

    with pytest.raises(DataError, match="rater 'ann' judged attribute 'a' of object 1 more than"):
        converted("error", "error")
    assert not (tmp_path / "error").exists()
    report, judged = converted("keep", "keep")
    assert (report.n_duplicates, judged) == (1, [1, 2, 4, 5, 6])
    report, judged = converted("first", "first")
    assert (report.n_duplicates, judged) == (1, [1, 2, 5, 6])


def test_a_file_that_changes_while_it_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_long(tmp_path / "long.parquet", FINE)
    add = SortedRuns.add

    def add_and_replace(runs: SortedRuns, rows: pa.Table) -> None:
        add(runs, rows)
        write_long(source, [*FINE, *FINE])

    monkeypatch.setattr(SortedRuns, "add", add_and_replace)
    with pytest.raises(DataError, match=r"long\.parquet changed during the conversion"):
        convert(source, tmp_path / "out", **ROLES)
    assert [path.name for path in tmp_path.iterdir()] == ["long.parquet"]


def test_dictionary_and_boolean_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "thing": pa.array(["x", "y", "x"]).dictionary_encode(),
            "question": pa.array(["q", "q", "r"]).dictionary_encode(),
            "answer": [True, False, True],
        }
    )
    pq.write_table(table, tmp_path / "long.parquet")
    convert(tmp_path / "long.parquet", tmp_path / "out", **ROLES)
    assert wide(tmp_path / "out") == [
        {"thing": "x", "q": [1.0], "r": [1.0]},
        {"thing": "y", "q": [0.0], "r": []},
    ]


FINE: list[Row] = [(1, "a", 1.0), (2, "b", 2.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"object": "thong"}, r"no column 'thong' \(object\)\. Did you mean 'thing'"),
        ({"worker": "zzz"}, r"no column 'zzz' \(worker\)\. Choose from question, thing, answer"),
        ({"worker": "answer"}, "one column is named for two roles"),
        ({"label": "c"}, "no judgment of attribute 'c'. Choose from a, b"),
        ({"label": "a", "label_from": "goald"}, r"no column 'goald' \(label\)"),
        ({"max_judgments": 0}, "max_judgments is 0"),
        ({"duplicates": "drop"}, "duplicates is 'drop'"),
        ({"seed": -1}, "seed is -1"),
        ({"memory_bytes": 0}, "memory_bytes is 0"),
    ],
)
def test_wrong_use(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = write_long(tmp_path / "long.parquet", FINE)
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "out", **{**ROLES, **options})
    assert [path.name for path in tmp_path.iterdir()] == ["long.parquet"]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("answer", ["1", "two"], "'answer' of .* is not numeric: row 1 .* holds 'two'"),
        ("answer", [1.0, float("inf")], "'answer' of .* is infinite in row 1"),
        ("answer", [[1.0], [2.0]], "'answer' of .* holds list"),
        ("thing", [None, 1], "'thing' of .* has no value in row 0"),
        ("thing", [1.5, float("nan")], "'thing' of .* has no value in row 1"),
        ("question", ["a", None], "'question' of .* has no value in row 1"),
        ("answer", [None, None], "holds no judgments"),
    ],
)
def test_wrong_rows(tmp_path: Path, column: str, values: list[Any], message: str) -> None:
    table = long_table(FINE)
    table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    pq.write_table(table, tmp_path / "long.parquet")
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "long.parquet", tmp_path / "out", **ROLES)
    assert [path.name for path in tmp_path.iterdir()] == ["long.parquet"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("thing,score\n1,2\n1,3\n", "object 1 has more than one row"),
        ("thing,score\n1,high\n", "'score' of .* is not numeric: row 0 .* 'high'"),
        ("thang,score\n1,2\n", r"no column 'thing' \(object\)\. Did you mean 'thang'"),
        ("thing,score\n7,2\n", "none of the 2 objects has a label"),
        ("thing,score\nseven,2\n", "cannot be read: .*seven"),
        ("thing,score\n,2\n", "'thing' of .* has no value in row 0"),
    ],
)
def test_wrong_labels(tmp_path: Path, labels: str, message: str) -> None:
    source = write_long(tmp_path / "long.parquet", FINE)
    (tmp_path / "labels.csv").write_text(labels)
    options = {"labels": tmp_path / "labels.csv", "label": "score"}
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "out", **ROLES, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("attributes", "options", "name"),
    [(["thing", "a"], {}, "thing"), (["a", "a__raters"], {"worker": "who"}, "a__raters")],
)
def test_attributes_named_like_another_column(
    tmp_path: Path, attributes: list[str], options: dict[str, str], name: str
) -> None:
    rows = [(1, attribute, 1.0) for attribute in attributes]
    source = write_long(tmp_path / "long.parquet", rows, who=["x", "x"])
    with pytest.raises(DataError, match=f"two columns of the result would be named '{name}'"):
        convert(source, tmp_path / "out", **ROLES, **options)


def test_no_such_source_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file or folder .*nowhere"):
        convert(tmp_path / "nowhere", tmp_path / "out", **ROLES)
    source = write_long(tmp_path / "long.parquet", FINE)
    source.write_bytes(source.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"long\.parquet cannot be read"):
        convert(source, tmp_path / "out", **ROLES)


def test_ids_of_another_type_in_a_later_file(tmp_path: Path) -> None:
    write_long(tmp_path / "1.parquet", FINE)
    write_long(tmp_path / "2.parquet", [("x", "a", 1.0)])
    with pytest.raises(DataError, match=r"2\.parquet does not hold int64"):
        convert(str(tmp_path / "*.parquet"), tmp_path / "out", **ROLES)


@pytest.mark.parametrize("memory_bytes", [2**30, 4_000])
def test_workers_stand_beside_their_judgments(tmp_path: Path, memory_bytes: int) -> None:
    """Whatever is drawn, dropped or divided, each value keeps the worker who gave it."""
    rng = np.random.default_rng(5)
    cells = [(thing, name) for thing in range(30) for name in "ab"]
    rows = [(*cells[i], float(i)) for i in rng.integers(0, len(cells), 300)]
    workers = [None if i % 17 == 0 else f"w{i % 40}" for i in range(300)]
    values = [float(i) for i in range(300)]
    rows = [(thing, name, value) for (thing, name, _), value in zip(rows, values, strict=True)]
    source = write_long(tmp_path / "a.parquet", rows, who=workers)
    options = {"worker": "who", "duplicates": "first", "max_judgments": 4, "seed": 3}
    convert(source, tmp_path / "w", memory_bytes=memory_bytes, **ROLES, **options)
    told = dict(zip(values, workers, strict=True))
    found = wide(tmp_path / "w")
    assert list(found[0]) == ["thing", "a", "b", "a__raters", "b__raters"]
    for row in found:
        for name in "ab":
            assert row[f"{name}__raters"] == [told[value] for value in row[name]]


def test_conversions_that_nobody_has_used_for_a_day_are_deleted(tmp_path: Path) -> None:
    for days, name in enumerate(("new", "old", "older", "used")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.parquet").write_bytes(bytes(100))
        then = time.time() - (days + 0.5) * 86_400
        os.utime(tmp_path / name / "part.parquet", (then, then))
    delete_unused(tmp_path, {"used"}, 350)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "used"]
    delete_unused(tmp_path, {"used"}, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "used"]
