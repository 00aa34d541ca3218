"""Data and specs that are not as they should be: one table for all methods.

Whatever is wrong is said in one paragraph with what to do, costs exit code 2, and leaves no result.
The words of options that a section checks by itself are those of the unit tests.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.errors import DistfmsError
from distfms.methods.frame import mapped
from distfms.methods.landmarks import form
from distfms.methods.multiselect import slab_form
from distfms.methods.sequence.form import SequenceForm
from distfms.runs.driver import run_job
from tests.e2e import multiselect_jobs
from tests.e2e.attribute_efficient_jobs import few_columns, few_job
from tests.e2e.landmarks_jobs import landmarks_job, ranked_rows, ranking_job, smooth_rows
from tests.e2e.multiselect_jobs import N, lists, objects
from tests.e2e.sequence_jobs import mixed_job, mixed_rows

FUNCTIONS = "tests.e2e.landmarks_jobs"


def sequence_ranking_job(data, output):
    section = {"groups": {}, "costs": {}, "shared_costs": {}}
    rows = {"target": "grade", "query": "q", "id": None, "test": 0.5}
    return mixed_job(data, output, data=rows, sequence=section)


#: Columns, spec and section of each kind of job.
KINDS = {
    "judgments": (objects, multiselect_jobs.job, "multiselect"),
    "rows": (mixed_rows, mixed_job, "sequence"),
    "smooth": (smooth_rows, landmarks_job, "landmarks"),
    "few": (few_columns, few_job, "attribute_efficient"),
    "ranked": (ranked_rows, ranking_job, "landmarks"),
    "ranked in groups": (ranked_rows, sequence_ranking_job, "sequence"),
}


def spec_of(kind, data, output, changes):
    """Spec of a kind of job with changes: options of the method, and `section.key` of others."""
    _, job, method = KINDS[kind]
    sections = {}
    for name, value in changes.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section or method, {})[key] = value
    return job(data, output, **sections)


def is_refused(spec):
    """Run a job that is refused, and return the message."""
    with pytest.raises(DistfmsError) as caught:
        run_job(spec())
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in text
    return text


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The data of each kind of job, written once."""
    folder = tmp_path_factory.mktemp("good")
    for kind, (columns, *_) in KINDS.items():
        pq.write_table(pa.table(columns()), folder / f"{kind}.parquet")
    return folder


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("judgments", {"data.missing": "pairs"}, "is not for the method `multiselect`"),
        ("judgments", {"data.path": ""}, "a path is empty"),
        ("judgments", {"data.path": "nowhere"}, "nowhere"),
        ("judgments", {"data.options": {"patch": 2}}, "embedded data"),
        ("judgments", {"data.target": "yy"}, "'yy'"),
        ("judgments", {"data.features": ["a", "bb"]}, "'bb'.*'b'"),
        ("judgments", {"costs": {"default": 8, "b": 7}}, "budget` is 6.*'b', costs 7"),
        ("judgments", {"costs": {"aa": 3}}, "aa"),
        ("judgments", {"baselines": ["single:aa"]}, "aa"),
        ("judgments", {"internal_variance": {"aa": 3}}, "aa"),
        ("judgments", {"budget": 1000000.0}, "buys 1,000,000 judgments of 'a'.*200,000 steps"),
        ("judgments", {"model": "refit", "budget": 30}, "`plan: true`"),
        ("judgments", {"buy_from": "same"}, r"known raters.*data\.long\.worker"),
        ("judgments", {"raters": "columns"}, "NAME__raters"),
        (
            "judgments",
            {"tune.grid": {"budget": [5, 0.5]}},
            r"budget\[1\]` is 0.5, which buys nothing",
        ),
        (
            "rows",
            {"groups": {"bp": ["bp_lo"]}},
            "'bp_lo' of group 'bp' is not a feature column. Did",
        ),
        ("rows", {"groups": {"bp": ["y"]}}, "'y' of group 'bp' is not a feature column"),
        ("rows", {"costs": {"blod": 2}}, "'blod' in costs is not a group. Did you mean 'blood'"),
        ("rows", {"baselines": ["ompp"]}, "Unknown rule `ompp`"),
        ("rows", {"costs": "nowhere.csv"}, "There is no table of costs nowhere.csv"),
        ("rows", {"data.query": "search"}, "no column 'search', named as `query`"),
        ("rows", {"data.missing": "error"}, "missing value"),
        ("smooth", {"similarity": {"name": "linear", "sigma": 2.0}}, "not a parameter of `linear`"),
        ("smooth", {"similarity": ["linear", "linear"]}, "the same similarity twice"),
        ("smooth", {"keep": 61}, "`keep` is 61, but there are 60 landmarks"),
        ("smooth", {"landmarks": 350}, r"landmarks` is 350: choose at most 3\d\d"),
        ("smooth", {"similarity": ["linear", "precomputed"]}, "`precomputed` beside others"),
        ("ranked", {"similarity": ["linear", "sigmoid"], "data.folds": 0}, "NDCG.* at least 2"),
        ("smooth", {"similarity": f"{FUNCTIONS}:f"}, "cannot be imported"),
        ("smooth", {"similarity": f"{FUNCTIONS}:broken"}, "`[^`]*:broken` failed: ValueError"),
        ("smooth", {"data.target": ["y", "still"]}, "landmarks predict one"),
        ("smooth", {"data.target": "still"}, "Target 'still' is constant"),
        ("smooth", {"tune.grid": {"landmarks": [10, 90]}}, r"grid.landmarks\[1\]` is 90.*Raise"),
        ("smooth", {"task": "ordinal", "loss": "hinge"}, "does not have the loss `hinge`"),
        (
            "smooth",
            {"task": "ordinal", "loss": "all_margins", "spacing": 0.5, "data.target": "level"},
            "`spacing` is for the loss `margin`",
        ),
        ("smooth", {"selection": "steps", "bound": 1.0}, "for the task `sparse`"),
        ("smooth", {"task": "ordinal", "data.target": "id", "data.id": None}, "must hold numbers"),
        ("ranked", {"data.query": None}, r"name the column of the query in `data\.query`"),
        ("ranked", {"data.target": "x0", "data.exclude": ["grade"]}, "from 0"),
        (
            "ranked",
            {"tune.grid": {"ridge": [1, 2]}, "tune.measure": "mae"},
            "they have mse, ndcg@1",
        ),
        ("few", {"attributes_per_example": 13}, r"\(n_features = 12\). Choose at most 12"),
        ("few", {"solver": "pairs", "step_factor": 2.0}, "an option of `solver: online`"),
        (
            "few",
            {"solver": "auto", "tune.grid": {"step_factor": [1.0, 3.0]}},
            r"`tune` varies.*Set `attribute_efficient.solver: online`",
        ),
        (
            "few",
            {"solver": "auto", "step_factor": 2.0, "data.missing": "pairs"},
            "needs `attribute_efficient.solver: pairs`",
        ),
        ("few", {"first_examples": 675}, "is 675, but there are 675 training rows"),
        ("few", {"algorithm": "aelr", "penalty": "ridge"}, "aelr` is not that of"),
        ("few", {"bound": 0.1}, "beyond `bound`"),
        ("few", {"positive": 77}, "same label"),
        ("few", {"tune.grid": {"bound": [0.1, 3.0]}}, "goes up to"),
        ("few", {"data.weight": "x0"}, "data.weight"),
        ("few", {"data.target": ["y", "x0"]}, "one column as `data.target`"),
        ("few", {"data.features": ["x7"]}, r"\(n_features = 1\). Choose at most 1"),
        ("few", {"data.id": None}, "holds text"),
    ],
)
def test_a_spec_that_does_not_fit_the_data(files, tmp_path, monkeypatch, kind, changes, message):
    monkeypatch.chdir(tmp_path)
    text = is_refused(lambda: spec_of(kind, files / f"{kind}.parquet", tmp_path / "runs", changes))
    assert re.search(message, text), text
    assert not list(tmp_path.rglob("metrics.json"))


def held_out_only(columns):
    """Targets of 0 and 1, and 3 in the test rows."""
    parts = assign_parts(np.array(columns["id"], object), n_folds=4, test=0.25, seed=0)
    return np.where(parts == 4, 3.0, np.arange(len(parts)) % 2)


TWO_EMPTY = {"data.features": ["x7", "x8"], "attributes_per_example": 2}
KNOWN = {"raters": "positions", "internal_variance": dict.fromkeys("abc", 1.0)}
SCATTERED = np.random.default_rng(0).permutation(ranked_rows()["q"])


@pytest.mark.parametrize(
    ("kind", "change", "changes", "message"),
    [
        ("judgments", {"y": [1.0] * N}, {}, "label"),
        ("judgments", {"a": [[1.0]] * N}, {}, r"\ba\b"),
        ("judgments", {"a": [[1.0, np.inf]] + [[1.0, 2.0]] * (N - 1)}, {}, "infinite"),
        ("judgments", {"a": ["x"] * N}, {}, "'a'"),
        ("judgments", {"b": lists([None] * N)}, {}, "Attribute b: no object has a judgment"),
        ("judgments", objects(k=1), KNOWN, "second rater"),
        ("judgments", objects(1), {"data.test": 0}, "at least 2"),
        ("rows", {"y": np.ones(600)}, {}, "Target 'y' is constant"),
        ("rows", {"y": np.full(600, np.nan)}, {}, "0 rows to train on"),
        ("rows", {"age": np.full(600, np.nan)}, {}, "All values of 'age' are missing"),
        ("rows", {"age": np.full(600, np.inf)}, {}, "infinite"),
        ("rows", {"y": np.arange(600) % 3}, {"family": "logistic"}, "with more use softmax"),
        ("rows", {"y": np.full(600, "a")}, {"family": "poisson"}, "must hold numbers"),
        ("rows", {"y": np.ones(600)}, {"family": "softmax"}, "has 1 values"),
        ("rows", {"y": np.arange(600) - 9}, {"family": "poisson", "baselines": []}, "counts ≥ 0"),
        ("rows", {}, {"family": "softmax", "data.target": ["y", "age"]}, "a single target"),
        (
            "rows",
            {"y": ["yes", "no"] * 300},
            {"family": "logistic", "class_weights": {"yess": 2.0}},
            "Did you mean 'yes'",
        ),
        (
            "smooth",
            {"y": held_out_only(smooth_rows())},
            {"task": "ordinal"},
            "occurs only in held-out rows",
        ),
        ("few", {"x8": np.zeros(900)}, TWO_EMPTY, "All attributes are 0"),
        ("few", {"x1": np.full(900, np.nan)}, {}, "missing"),
        ("ranked", {"q": SCATTERED}, {}, "Sort the data by the `query`"),
        ("ranked in groups", {"q": SCATTERED}, {}, "are not adjacent"),
        (
            "ranked in groups",
            {"grade": ranked_rows()["grade"] - 1},
            {},
            "NDCG, which `data.query` asks for",
        ),
    ],
)
def test_columns_that_no_job_can_use(tmp_path, kind, change, changes, message):
    columns, *_ = KINDS[kind]
    pq.write_table(pa.table(columns() | change), tmp_path / "rows.parquet")
    text = is_refused(lambda: spec_of(kind, tmp_path / "rows.parquet", tmp_path / "runs", changes))
    assert re.search(message, text), text
    assert not list(tmp_path.rglob("metrics.json"))


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("test", [0, 0.2])
@pytest.mark.parametrize("kind", ["judgments", "rows", "smooth", "few"])
def test_an_id_that_is_the_same_in_all_rows_is_named(tmp_path, kind, test, others):
    """Its rows are all in one fold, or held out."""
    columns = KINDS[kind][0]()
    n = len(columns["id"])
    columns["id"] = [*["one"] * (n - others), *["other"] * others]
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    changes = {"data.folds": 3, "data.test": test}
    text = is_refused(lambda: spec_of(kind, tmp_path / "rows.parquet", tmp_path / "runs", changes))
    assert "with the same 'id' stay together" in text


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("judgments", {"y": [1.0] * N}, "label"),
        ("rows", {"y": np.full(600, 7.0)}, "Target 'y' is constant"),
        ("rows", {"age": np.full(600, np.nan)}, "age"),
        ("rows", {"blood": np.where(np.arange(600) == 3, np.inf, 1.0)}, "blood"),
    ],
)
def test_columns_that_no_search_of_many_can_use(tmp_path, monkeypatch, kind, change, message):
    monkeypatch.setattr(slab_form, "SLAB_COLUMNS", 2)
    monkeypatch.setattr(slab_form, "ONE_PROCESS_BYTES", 0)
    monkeypatch.setattr(mapped, "PASS_ROWS", 4)
    monkeypatch.setattr(SequenceForm, "one_process_bytes", 2**50)
    options = {"psd": "none"} if kind == "judgments" else {"baselines": []}
    test_columns_that_no_job_can_use(tmp_path, kind, change, options, message)


@pytest.mark.parametrize("other", [{"c": None}, {"a": ["x"]}])
def test_held_out_data_of_another_kind(tmp_path, other):
    """Found before any row is read."""
    multiselect_jobs.write(tmp_path, objects())
    rows = {"id": [0], "y": [1.0], "a": [[1.0]], "b": [[1.0]], "c": [[1.0]]} | other
    rows = {name: values for name, values in rows.items() if values is not None}
    multiselect_jobs.write(tmp_path / "other", rows)
    data = {"test": 0, "test_path": str(tmp_path / "other")}
    job = multiselect_jobs.job(tmp_path / "data.parquet", tmp_path / "runs", data=data)
    assert re.search("no column 'c'|'a'.*holds string", is_refused(lambda: job))


def test_held_out_data_are_not_learned_from(tmp_path):
    path = multiselect_jobs.write(tmp_path / "all", objects(), "2.parquet")
    multiselect_jobs.write(tmp_path / "all", objects(seed=2), "1.parquet")
    job = multiselect_jobs.job(
        tmp_path / "all", tmp_path / "runs", data={"test": 0, "test_path": str(path)}
    )
    assert "2.parquet is in both `data.path` and `data.test_path`" in is_refused(lambda: job)


@pytest.mark.parametrize(
    ("name", "section", "message"),
    [
        ("broken", {}, "failed: ValueError: broken"),
        ("narrow", {}, r"returned an array of shape \(\d+, 1\)"),
        ("undefined", {"loss": "epsilon_insensitive"}, "returned nan for row 0 of a block"),
    ],
)
def test_functions_that_fail_on_the_sample_are_named(
    files, tmp_path, actors_pay, name, section, message
):
    options = {"similarity": f"{FUNCTIONS}:{name}", **section}
    engine = {"workers": 2, "processes": True}
    job = landmarks_job(files / "smooth.parquet", tmp_path, landmarks=options, engine=engine)
    assert re.search(rf"`{FUNCTIONS}:{name}` {message}", is_refused(lambda: job))


def test_functions_that_fail_in_processes_name_the_partition(
    files, tmp_path, actors_pay, monkeypatch
):
    """A ranking compares nothing on a sample."""
    monkeypatch.setattr(form, "SAMPLED_ROWS", 100)
    options = {"similarity": f"{FUNCTIONS}:narrow"}
    engine = {"workers": 2, "processes": True}
    job = ranking_job(files / "ranked.parquet", tmp_path, landmarks=options, engine=engine)
    assert re.search(r"ranked\.parquet, row group.* returned an array", is_refused(lambda: job))


@pytest.mark.slow
def test_functions_that_fail_on_ray_name_the_partition(ray_session, files, tmp_path, monkeypatch):
    monkeypatch.setattr(form, "SAMPLED_ROWS", 100)  # others are read once
    options = {"similarity": f"{FUNCTIONS}:undefined"}
    engine = {"kind": "ray", "workers": 2}
    job = ranking_job(files / "ranked.parquet", tmp_path, landmarks=options, engine=engine)
    assert re.search(r"ranked\.parquet, row group.* returned nan", is_refused(lambda: job))
