"""Where a spec says that runs are kept, and what is written down of the way there."""

import pytest
import yaml

from distfms.engine.remote import RemotePath
from distfms.errors import SpecError
from distfms.hidden import HIDDEN, hidden, hidden_in_urls
from distfms.runs.job_spec import build_spec, load_spec
from distfms.spec import expanded


def spec(output=None, **data):
    content = {
        "name": "x",
        "method": "multiselect",
        "data": {"path": "p", "target": "y", **data},
        "multiselect": {"budget": 3},
    }
    return build_spec(content if output is None else {**content, "output": output})


def test_which_registry_is_meant(tmp_path, monkeypatch):
    monkeypatch.delenv("DISTFMS_REGISTRY", raising=False)
    assert str(spec().registry().root) == "runs/registry"
    assert str(spec("memory://a/runs/").registry().root) == "memory://a/runs/registry"
    monkeypatch.setenv("ROOT", str(tmp_path))
    own = spec({"path": "memory://a", "registry": "${ROOT}/models"})
    assert own.registry().root == tmp_path / "models"
    monkeypatch.setenv("DISTFMS_REGISTRY", "memory://b/models")
    assert own.registry().root == RemotePath("memory://b/models")
    assert str(own.registry("here").root) == "here"
    options = {"endpoint_url": "http://host:9000"}
    remote = spec({"path": "runs", "registry": "memory://a", "storage_options": options})
    assert remote.registry().root.storage_options == options


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (5, "`output` must be the folder or URL"),
        (["a"], "`output` must be the folder or URL"),
        ("", r"output\.path"),
        ({"place": "x"}, r"output\.place|Unknown key"),
        ({"path": "runs", "storage_options": {"key": "x"}}, "are for URLs"),
        ({"path": "s3://b", "storage_options": 3}, "storage_options"),
        ({"path": "runs", "cache_bytes": "much"}, "much"),
        ("sftp://me:secret@host/x", "holds a password"),
    ],
)
def test_outputs_that_are_refused(output, message):
    with pytest.raises(SpecError, match=message):
        spec(output)


def test_unknown_storage_is_refused_before_anything_is_done():
    with pytest.raises(SpecError, match="unknown storage"):
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
    "pin": 123456,
    "headers": {"Authorization": "Bearer hush", "cookie": "hush"},
    "cookies": ["hush", {"session": "hush"}],
    "pwd": "hush",
    "port": 9000,
}


def test_secrets_in_clear_are_not_written_down(tmp_path):
    written = spec({"path": "s3://b/runs", "storage_options": OPTIONS}, storage_options=OPTIONS)
    text = written.to_yaml()
    assert not any(secret in text for secret in ("AKIA", "hush", "123456"))
    kept = yaml.safe_load(text)["output"]["storage_options"]
    assert kept == {
        **OPTIONS,
        "key": HIDDEN,
        "client_kwargs": {"endpoint_url": "http://host:9000", "aws_session_token": HIDDEN},
        "pin": HIDDEN,
        "headers": {"Authorization": HIDDEN, "cookie": HIDDEN},
        "cookies": [HIDDEN, {"session": HIDDEN}],
        "pwd": HIDDEN,
    }
    assert yaml.safe_load(text)["data"]["storage_options"] == kept
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"`key` was left out of the saved spec.*\$\{NAME\}"):
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
    ("url", "shown"),
    [
        ("http://me:hush@host:9000", f"http://{HIDDEN}@host:9000"),
        ("https://:hush@host/x", f"https://{HIDDEN}@host/x"),
        ("https://hush@host/x", f"https://{HIDDEN}@host/x"),
        ("http://me:a${SECRET}@host:9000", f"http://{HIDDEN}@host:9000"),
        ("https://h/x.parquet?X-Amz-Signature=hush&a=b", f"https://h/x.parquet?{HIDDEN}"),
        ("abfss://c@account/x?sv=2&sig=hush", f"abfss://c@account/x?{HIDDEN}"),
        ("http://me:${SECRET}@host:9000", None),
        ("https://host/x?${QUERY}", None),
        ("https://host/x?sig=${SIGNATURE}", None),
        ("http://host:9000/a@b", None),
        ("hdfs://me@host:9000/x", None),
        ("s3://b/part-?.parquet", None),
        ("s3://b/year=202?/part=1/*", None),
        ("s3://b/x?versionId=7", None),
    ],
)
def test_secrets_in_urls(url, shown):
    shown = shown or url
    assert hidden_in_urls(url) == hidden_in_urls(shown) == shown
    assert hidden_in_urls(f"See {url}, or {url}.") == f"See {shown}, or {shown}."
    assert str(SpecError(f"Not {url}")) == f"Not {shown}"
    kept = url if shown == url else HIDDEN
    options = {"client_kwargs": {"endpoint_url": url}}
    assert hidden(options) == {"client_kwargs": {"endpoint_url": kept}}


def test_signed_urls_of_data_are_not_written_down(tmp_path):
    signed = spec(path="https://host/x.parquet?sig=hush")
    assert "hush" not in signed.to_yaml()
    assert signed.identity([]) == spec(path="https://host/x.parquet?sig=other").identity([])
    (tmp_path / "spec.yaml").write_text(signed.to_yaml())
    with pytest.raises(SpecError, match=r"left out of the saved spec.*\$\{NAME\}"):
        load_spec(tmp_path / "spec.yaml")


def test_the_way_to_storage_is_no_part_of_a_job():
    other = spec({"path": "s3://b", "storage_options": OPTIONS}, storage_options=OPTIONS)
    assert spec().identity(["f"]) == other.identity(["f"])
