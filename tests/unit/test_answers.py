"""The benchmark of all questions runs on tiny settings, and goes on where it was stopped."""

import pytest

from benchmarks.answers.__main__ import QUESTIONS, main

#: Questions whose tables take little time.
QUICK = ("few_attributes", "landmarks")


@pytest.mark.parametrize(
    "question",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in QUESTIONS],
)
def test_a_question_has_a_table_and_a_page_and_is_not_asked_again(question, tmp_path, capsys):
    given = ["--questions", question, "--tables", "diabetes", "--splits", "1", "--rows", "80"]
    for _ in range(2):
        main([*given, "--out", str(tmp_path)])
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    assert len(lines) == len([t for t in QUESTIONS[question][0].tables() if "diabetes" in t])
    assert "| diabetes" in capsys.readouterr().out
    assert QUESTIONS[question][1].title in (tmp_path / "answers.html").read_text()
