"""Where a spec says that runs are kept, and what is written down of the way there."""

import pytest

from distfms.credentials import without_credentials
from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec
from distfms.spec import expanded
from distfms.store.remote import RemotePath


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


HARMLESS = {
    "secret": "${SECRET}",
    "anon": False,
    "client_kwargs": {"endpoint_url": "http://host:9000", "region_name": "r"},
    "hosts": ["a", "b"],
    "token": "anon",
    "headers": {"Authorization": "Bearer ${SECRET}"},
    "port": 9000,
}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"key": "AKIAhush"}, "key"),
        ({"secret": "a${SECRET}hush"}, "secret"),
        ({"pin": 123456}, "pin"),
        ({"client_kwargs": {"aws_session_token": "hush"}}, "client_kwargs.aws_session_token"),
        ({"headers": {"Authorization": "Bearer hush"}}, "headers.Authorization"),
        ({"cookies": ["${A}", {"session": "hush"}]}, "cookies.session"),
        ({"endpoint_url": "http://me:hush@host:9000"}, "endpoint_url"),
        ({"client_kwargs": {"endpoint_url": "http://h/x?sig=hush"}}, "client_kwargs.endpoint_url"),
        ({"host": "me:hush@host"}, "host"),
    ],
)
def test_secrets_in_clear_are_refused(options, name):
    for sections in (
        {"output": {"path": "s3://b/runs", "storage_options": options}},
        {"storage_options": options},
    ):
        with pytest.raises(SpecError, match=rf"`storage_options\.{name}` .*\$\{{NAME\}}") as caught:
            spec(**sections)
        assert "hush" not in str(caught.value)
        assert "123456" not in str(caught.value)


@pytest.mark.parametrize(
    "section",
    [
        {"data": {"path": "p", "target": "y", "storage_options": "hush"}},
        {"output": {"path": "s3://b", "storage_options": "hush"}},
        {"output": {"path": "https://h/x;sig=hush"}},
        {"output": {"path": "runs", "registry": "abfss://c@account/x?sv=2&sig=hush"}},
        {"engine": {"kind": "dask", "address": "tcp://u:hush@host:8786"}},
        {"engine": {"kind": "ray", "address": "ray://hush@host:10001"}},
    ],
)
def test_secrets_in_clear_are_not_told(section):
    content = {"name": "x", "method": "multiselect", "data": {"path": "p", "target": "y"}}
    with pytest.raises(SpecError) as caught:
        build_spec({**content, "multiselect": {"budget": 3}, **section})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("places", "refused"),
    [
        ({"path": "sftp://me:hush@host/x"}, True),
        ({"path": ["a", "sftp://me:hush@host/x"]}, True),
        ({"test_path": "https://me:hush@host/x"}, True),
        ({"unlabelled_path": "https://hush@host/x"}, True),
        ({"path": "https://h/x.parquet?X-Amz-Signature=hush&a=b"}, True),
        ({"path": "https://h/x?hush"}, True),
        ({"path": "abfss://c@account/x?sv=2&sig=hush"}, True),
        ({"path": "https://host/x?sig=${SIGNATURE}&download=1"}, False),
        ({"path": "https://host/x?${QUERY}"}, False),
        ({"path": "sftp://me:${NAME}@host/x"}, False),
        ({"path": "abfss://container@account.dfs.core.windows.net/x"}, False),
        ({"path": "hdfs://me@host:9000/x"}, False),
        ({"path": "s3://bucket/x@y:z@w"}, False),
        ({"path": "s3://b/part-?.parquet"}, False),
        ({"path": "s3://b/x?versionId=7"}, False),
    ],
)
def test_secrets_in_the_urls_of_the_data(places, refused):
    if not refused:
        spec(**places)
        return
    with pytest.raises(SpecError, match="`path` may hold a secret in clear text") as caught:
        spec(**places)
    assert "hush" not in str(caught.value)


def test_variables_are_filled_in_when_they_are_used(monkeypatch):
    monkeypatch.setenv("SECRET", "from-outside")
    found = expanded(spec(storage_options=HARMLESS).data.storage_options)
    headers = {"Authorization": "Bearer from-outside"}
    assert found == {**HARMLESS, "secret": "from-outside", "headers": headers}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:hush@host:9000", "http://host:9000"),
        ("https://:hush@host/x", "https://host/x"),
        ("https://hush@host/x", "https://host/x"),
        ("tcp://me:hush@host:8786", "tcp://host:8786"),
        ("https://h/x.parquet?X-Amz-Signature=hush&a=b", "https://h/x.parquet"),
        ("https://h/x.parquet;sig=hush", "https://h/x.parquet"),
        ("abfss://c@account/x?sv=2&sig=hush", "abfss://c@account/x"),
        ("http://host:9000/a@b", None),
        ("hdfs://me@host:9000/x", None),
        ("s3://b/part-?.parquet", None),
        ("s3://b/year=202?/part=1/*", None),
        ("s3://b/x?versionId=7", None),
    ],
)
def test_messages_quote_no_secret(url, shown):
    shown = shown or url
    assert without_credentials(f"See {url}, or {url}.") == f"See {shown}, or {shown}."
    assert str(SpecError(f"Not {url}")) == f"Not {shown}"


def test_the_way_to_storage_is_no_part_of_a_job():
    other = spec({"path": "s3://b", "storage_options": HARMLESS}, storage_options=HARMLESS)
    assert spec().identity(["f"]) == other.identity(["f"])
