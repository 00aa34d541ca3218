"""Where a spec says that runs are kept, and what is written down of the way there."""

import pytest
import yaml

from distfms.engine.remote import RemotePath
from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.storage_options import HIDDEN, expanded, hidden


def spec(output=None, **data):
    content = {
        "name": "x",
        "method": "multiselect",
        "data": {"path": "p", "target": "y", **data},
        "multiselect": {"budget": 3},
    }
    return build_spec(content if output is None else {**content, "output": output})


def test_folder_or_url(tmp_path, monkeypatch):
    monkeypatch.setenv("BUCKET", "lab")
    monkeypatch.setenv("ROOT", str(tmp_path))
    assert str(spec().place()) == "runs"
    assert spec("${ROOT}/runs").place() == tmp_path / "runs"
    assert spec(f"file://{tmp_path}/runs").place() == tmp_path / "runs"
    assert str(spec("memory://${BUCKET}/runs").place()) == "memory://lab/runs"
    assert spec({"path": "memory://a"}).place() == RemotePath("memory://a")
    assert spec({}).output == "runs"
    assert spec("memory://a").place("elsewhere").as_posix() == "elsewhere"
    assert str(spec("runs").place("memory://b/run")) == "memory://b/run"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (5, "`output` is the folder or URL"),
        (["a"], "`output` is the folder or URL"),
        ("", r"output\.path"),
        ({"place": "x"}, r"output\.place|Unknown key"),
        ({"path": "runs", "storage_options": {"key": "x"}}, "are for URLs"),
        ({"path": "s3://b", "storage_options": 3}, "storage_options"),
        ("sftp://me:secret@host/x", "holds a password"),
    ],
)
def test_outputs_that_are_refused(output, message):
    with pytest.raises(SpecError, match=message):
        spec(output)


def test_unknown_storage_is_refused_before_anything_is_done():
    with pytest.raises(SpecError, match="no storage of the kind"):
        spec("s3x://bucket/runs").place()
    with pytest.raises(SpecError, match="NO_SUCH_VARIABLE"):
        spec("s3://${NO_SUCH_VARIABLE}/runs").place()


OPTIONS = {
    "key": "AKIA",
    "secret": "${SECRET}",
    "anon": False,
    "client_kwargs": {"endpoint_url": "http://host:9000", "aws_session_token": "hush"},
    "hosts": ["a", "b"],
    "token": "anon",
}


def test_secrets_in_clear_are_not_written_down(tmp_path):
    written = spec({"path": "s3://b/runs", "storage_options": OPTIONS}, storage_options=OPTIONS)
    text = written.to_yaml()
    assert "AKIA" not in text
    assert "hush" not in text
    kept = yaml.safe_load(text)["output"]["storage_options"]
    assert kept == {
        "key": HIDDEN,
        "secret": "${SECRET}",
        "anon": False,
        "client_kwargs": {"endpoint_url": "http://host:9000", "aws_session_token": HIDDEN},
        "hosts": ["a", "b"],
        "token": "anon",
    }
    assert yaml.safe_load(text)["data"]["storage_options"] == kept
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"`key` was not written down.*\$\{NAME\}"):
        load_spec(tmp_path / "spec.yaml").place()


@pytest.mark.parametrize(
    ("places", "refused"),
    [
        ({"path": "sftp://me:hush@host/x"}, True),
        ({"path": ["a", "sftp://me:hush@host/x"]}, True),
        ({"test_path": "https://me:hush@host/x"}, True),
        ({"path": "sftp://me:${NAME}@host/x"}, False),
        ({"path": "abfss://container@account.dfs.core.windows.net/x"}, False),
        ({"path": "hdfs://me@host:9000/x"}, False),
        ({"path": "s3://bucket/x@y:z@w"}, False),
    ],
)
def test_password_in_the_url_of_the_data(places, refused):
    if not refused:
        spec(**places)
        return
    with pytest.raises(SpecError, match="a URL holds a password") as error:
        spec(**places)
    assert "hush" not in str(error.value)


def test_variables_are_filled_in_when_they_are_used(monkeypatch):
    monkeypatch.setenv("SECRET", "from-outside")
    assert expanded(OPTIONS) == {**OPTIONS, "secret": "from-outside"}
    assert hidden({"secret": "${SECRET}"}) == {"secret": "${SECRET}"}
    assert hidden({"secret": "a${SECRET}"}) == {"secret": HIDDEN}


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("http://me:hush@host:9000", True),
        ("https://:hush@host/x", True),
        ("http://me:${SECRET}@host:9000", False),
        ("http://me:a${SECRET}@host:9000", True),
        ("http://me@host:9000", False),
        ("http://host:9000/a@b", False),
    ],
)
def test_password_in_the_url_of_a_server(url, secret):
    options = {"client_kwargs": {"endpoint_url": url}}
    kept = HIDDEN if secret else url
    assert hidden(options) == {"client_kwargs": {"endpoint_url": kept}}


def test_the_way_to_storage_is_no_part_of_a_job():
    plain, other = (
        spec(),
        spec({"path": "s3://b", "storage_options": OPTIONS}, storage_options=OPTIONS),
    )
    assert plain.identity(["f"]) == other.identity(["f"])
