import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files import convert
from distfms.data.files.formats.copies import Copies
from distfms.data.files.long_form import LongSource
from distfms.data.files.storage import list_files
from distfms.errors import DataError
from distfms.spec import LongForm
from tests.reference.long_form import pivot

ROLES = {
    "object": "thing",
    "attribute": "question",
    "value": "answer",
    "label": "truth",
    "label_from": "column",
}


def long_table(rows, **more):
    things, questions, answers = zip(*rows, strict=True)
    columns = {
        "question": pa.array(questions, pa.string()),
        "thing": list(things),
        "answer": pa.array(answers, pa.float64()),
        "truth": [1.0] * len(rows),
    }
    return pa.table(columns | more)


def write_long(path, rows, **more):
    pq.write_table(long_table(rows, **more), path)
    return path


def random_rows(n, *, text_ids):
    rng = np.random.default_rng(0)
    things = rng.zipf(1.5, n) % 97 - 20
    ids = [f"ü{t}" for t in things] if text_ids else things.tolist()
    questions = rng.choice(["tall", "old", "near", "loud"], n).tolist()
    answers = [None if answer == 9 else float(answer) for answer in rng.integers(0, 10, n)]
    return list(zip(ids, questions, answers, strict=True))


def wide(folder):
    rows = pq.read_table(folder, partitioning=None).to_pylist()
    return [{k: v for k, v in row.items() if k != "truth"} for row in rows]


def contents(folder):
    return [path.read_bytes() for path in sorted(folder.glob("*/*"))]


def converted(source, out, *, seed=0, **options):
    form = LongForm(**{**ROLES, **options})
    labels = list_files(form.labels) if form.labels else ()
    files = list_files(source)
    folder, counts = convert.converted(
        files, form, labels=labels, seed=seed, copies=Copies(out.with_suffix(".kept"))
    )
    out.symlink_to(folder)
    return counts


@pytest.mark.parametrize("text_ids", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_judgments": 2, "worker": "who"}])
def test_pieces_do_not_change_a_byte(tmp_path, monkeypatch, text_ids, options):
    rows = random_rows(2000, text_ids=text_ids)
    workers = [f"w{j}" for j in range(2000)]
    write_long(tmp_path / "a.parquet", rows[:700], who=workers[:700])
    write_long(tmp_path / "b.parquet", rows[700:], who=workers[700:])
    notes = []
    written = []
    for n_rows in (2**20, 80):
        monkeypatch.setattr(convert, "_PIECE_ROWS", n_rows)
        out = tmp_path / f"out-{n_rows}"
        notes.append(converted(str(tmp_path / "?.parquet"), out, **options))
        written.append(contents(out))
    assert notes[0] == notes[1]
    assert written[0] == written[1]
    assert len(written[0]) == 2
    assert notes[0]["n_without_value"] == sum(value is None for *_, value in rows)
    if not options:
        assert {row.pop("thing"): row for row in wide(out)} == {
            thing: {name: of.get(name, []) for name in ("loud", "near", "old", "tall")}
            for thing, of in pivot(rows).items()
        }


def test_label_next_to_the_judgments(tmp_path):
    rows = [(1, "a", 1), (1, "y", 3), (2, "y", 4), (2, "a", 5)]
    source = write_long(tmp_path / "long.parquet", rows, gold=[7, 8, 9, 10], fixed=[1, 1, 2, 2])
    converted(source, tmp_path / "g", label="y", label_from="gold")
    assert wide(tmp_path / "g") == [
        {"thing": 1, "y_gold": 8.0, "a": [1.0], "y": [3.0]},
        {"thing": 2, "y_gold": 9.0, "a": [5.0], "y": [4.0]},
    ]
    converted(source, tmp_path / "f", label="fixed", label_from="column")
    assert [row["fixed"] for row in wide(tmp_path / "f")] == [1.0, 2.0]
    with pytest.raises(DataError, match="object 1 has two labels in the column 'gold'"):
        converted(source, tmp_path / "e", label="gold", label_from="column")


def test_drawn_judgments_are_uniform_and_seeded(tmp_path):
    rows = [(i, a, float(j)) for i in range(2000) for a in "ab" for j in range(5)]
    source = write_long(tmp_path / "long.parquet", rows)
    drawn = {}
    for seed in (0, 1):
        out = tmp_path / str(seed)
        converted(source, out, max_judgments=2, seed=seed)
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


def test_duplicates(tmp_path):
    rows = [(1, "a", 1), (1, "a", 2), (1, "b", 3), (1, "a", 4), (1, "a", 5)]
    who = ["ann", "bob", "ann", "ann", None]
    source = write_long(tmp_path / "long.parquet", [*rows, (1, "a", 6)], who=[*who, None])

    with pytest.raises(DataError, match="Rater 'ann' judged attribute 'a' of object 1 more than"):
        converted(source, tmp_path / "error", worker="who")
    assert not contents(tmp_path / "error")
    values = {"keep": [1, 2, 4, 5, 6], "first": [1, 2, 5, 6]}
    for duplicates, kept in values.items():
        out = tmp_path / duplicates
        note = converted(source, out, worker="who", duplicates=duplicates)
        assert wide(out)[0]["a"] == kept
        assert note.get("n_duplicates", 0) == 5 - len(kept)


def test_a_file_that_changes_while_it_is_converted(tmp_path, monkeypatch):
    source = write_long(tmp_path / "long.parquet", FINE)
    read = LongSource._checked

    def read_and_replace(*given):
        write_long(source, [*FINE, *FINE])
        return read(*given)

    monkeypatch.setattr(LongSource, "_checked", read_and_replace)
    with pytest.raises(DataError, match=r"long\.parquet changed while it was converted"):
        converted(source, tmp_path / "out")
    assert not contents(tmp_path / "out")


FINE = [(1, "a", 1.0), (2, "b", 2.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"object": "thong"}, r"no column 'thong' \(`data\.long`, object\)\. Did you mean 'thing'"),
        ({"worker": "answer"}, "names one column for two roles: .*, value: answer"),
        (
            {"label": "c", "label_from": "mean"},
            "no judgment of the attribute 'c', the label. Choose from a, b",
        ),
    ],
)
def test_wrong_use(tmp_path, options, message):
    source = write_long(tmp_path / "long.parquet", FINE)
    with pytest.raises(DataError, match=message):
        converted(source, tmp_path / "out", **options)
    assert not contents(tmp_path / "out")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("answer", ["1", "two"], "'answer' of .* is not numeric: row 1 .* holds 'two'"),
        ("answer", [1.0, float("inf")], "'answer' of .* is infinite in row 1"),
        ("answer", [[1.0], [2.0]], "'answer' of .* holds list"),
        ("thing", [None, 1], "'thing' of .* has no value in row 0"),
        ("thing", [1.5, float("nan")], "'thing' of .* has no value in row 1"),
        ("question", ["a", None], "'question' of .* has no value in row 1"),
        ("answer", [None, None], "The files hold no judgments: check"),
    ],
)
def test_wrong_rows(tmp_path, column, values, message):
    table = long_table(FINE)
    table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    pq.write_table(table, tmp_path / "long.parquet")
    with pytest.raises(DataError, match=message):
        converted(tmp_path / "long.parquet", tmp_path / "out")
    assert not contents(tmp_path / "out")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("thing,score\n1,2\n1,3\n", "object 1 has several rows in the labels .*: keep one"),
        ("thing,score\n1,high\n", "'score' of .* is not numeric: row 0 .* 'high'"),
        (
            "thang,score\n1,2\n",
            r"no column 'thing' \(`data\.long`, object\)\. Did you mean 'thang'",
        ),
        ("thing,score\n7,2\n", "None of the 2 objects has a label: check"),
        ("thing,score\nseven,2\n", "has .*'seven' in column 'thing', row 2"),
    ],
)
def test_wrong_labels(tmp_path, labels, message):
    source = write_long(tmp_path / "long.parquet", FINE)
    (tmp_path / "labels.csv").write_text(labels)
    options = {"labels": str(tmp_path / "labels.csv"), "label": "score"}
    with pytest.raises(DataError, match=message):
        converted(source, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("attributes", "options", "name"),
    [(["thing", "a"], {}, "thing"), (["a", "a__raters"], {"worker": "who"}, "a__raters")],
)
def test_attributes_named_like_another_column(tmp_path, attributes, options, name):
    rows = [(1, attribute, 1.0) for attribute in attributes]
    source = write_long(tmp_path / "long.parquet", rows, who=["x", "x"])
    with pytest.raises(DataError, match=f"Two columns would be named '{name}'"):
        converted(source, tmp_path / "out", **options)


def test_ids_of_another_type_in_a_later_file(tmp_path):
    write_long(tmp_path / "1.parquet", FINE)
    write_long(tmp_path / "2.parquet", [("x", "a", 1.0)])
    with pytest.raises(DataError, match=r"2\.parquet cannot be read as int64"):
        converted(str(tmp_path / "*.parquet"), tmp_path / "out")
