"""A secret word reaches no file that is written, and no line that is shown."""

import http.server
import json
import os
import threading

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import judgments_job

SECRET = "hush-4711"


class SignedFiles(http.server.SimpleHTTPRequestHandler):
    """Serves pieces of files to whoever signs."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        place = os.path.join(self.server.folder, path.lstrip("/"))
        if SECRET not in query or "denied" in path:
            self.send_error(403)
            return
        if not os.path.isfile(place):
            self.send_error(404)
            return
        with open(place, "rb") as stream:
            content = stream.read()
        size = len(content)
        wanted = self.headers.get("Range")
        self.send_response(206 if wanted else 200)
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = min(int(last or size), size - 1)
            content = content[int(first) : end + 1]
            self.send_header("Content-Range", f"bytes {first}-{end}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(judgments):
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SignedFiles)
    found.folder = judgments
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def require_clean(folder, *shown):
    """Fail where the word is in a file, in the name of one, or in what was shown."""
    for path in folder.rglob("*"):
        assert SECRET not in str(path)
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    for text in shown:
        assert SECRET not in text


def test_a_signed_address_leaves_no_trace(server, judgments, tmp_path, distfms, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIGN", SECRET)
    monkeypatch.setenv("SECOND", f"{server}/part-1.parquet?X-Amz-Signature={SECRET}&b=%2F#end")
    content = judgments_job(judgments, tmp_path / "runs").to_mapping()
    content["data"]["path"] = [f"{server}/part-0.parquet?sig=${{SIGN}}", "${SECOND}"]
    content["output"]["registry"] = str(tmp_path / "registry")
    (tmp_path / "job.yaml").write_text(json.dumps(content))
    shown = []

    def does(*arguments, code=(0,)):
        done = distfms(*map(str, arguments))
        shown.extend([done.out, done.err])
        assert done.code in code, done.out + done.err

    does("check", "job.yaml")
    does("retrain", "job.yaml")
    does("retrain", "job.yaml", "--set", "seed=1", "--anew")
    does("models", "list", "small", "--registry", "registry", "--json")
    does("report", "runs/small")
    (latest,) = (tmp_path / "runs" / "small").glob("latest")
    signed = f"{server}/part-2.parquet?sig={SECRET}"
    does("predict", latest, signed, "--out", "p.parquet")
    does("predict", latest, signed, "--out", "parts/")
    does("predict", latest, signed, "--out", "folds.csv", "--with-folds")
    rows = pq.read_table(tmp_path / "p.parquet")
    assert rows.equals(pq.read_table(next((tmp_path / "parts").glob("*.parquet"))))
    assert not pc.any(pc.is_null(rows["predicted_y"])).as_py()
    for wrong in (f"{server}/none.parquet", f"{server}/denied", "http://127.0.0.1:1/x.parquet"):
        place = f"{wrong}?sig={SECRET}"
        does("predict", latest, place, "--out", "q.parquet", code=(1, 2))
        monkeypatch.setenv("SECOND", place)
        does("run", "job.yaml", code=(1, 2))
    require_clean(tmp_path, *shown)


@pytest.mark.parametrize(
    "assignment",
    [
        f"data.path=https://host/x.parquet?X-Amz-Signature={SECRET}",
        f"data.storage_options={{key: {SECRET}}}",
        f"output.path=https://host/runs?sig={SECRET}",
        f"output.storage_options=[{SECRET}]",
        f"engine={{kind: dask, address: 'tcp://u:{SECRET}@host:8786'}}",
        f"data.storage_options={{key: {SECRET}",
        f"data.storage_options.key: {SECRET}",
    ],
)
def test_secrets_in_clear_are_refused_without_being_told(judgments, tmp_path, distfms, assignment):
    spec = judgments_job(judgments, tmp_path / "runs").to_mapping() | {"output": {"path": "runs"}}
    del spec["data"]["test_path"]
    (tmp_path / "job.yaml").write_text(json.dumps(spec))
    done = distfms("run", str(tmp_path / "job.yaml"), "--set", assignment)
    assert done.code == 2, done.out + done.err
    require_clean(tmp_path, done.out, done.err)
