import pyarrow as pa
import pytest

from distfms.data.files.texts import NumberForm, nearly_numbers, read_numbers


@pytest.mark.parametrize(
    ("texts", "form", "numbers"),
    [
        (["1.234,56", "42.000,00", "-7", "n/a", "<5"], None, [1234.56, 42000, -7, None, 5]),
        (["<0.6", "≤ 1,200", ">=3", "> 7"], NumberForm(), [0.6, 1200, 3, 7]),
        (["< 0,6 %", "2,5 %", "<1e-3 %"], None, [0.6, 2.5, 0.001]),
        (["12,125", "7"], NumberForm(","), [12.125, 7]),
        (["12,125", "7"], None, [12125, 7]),
        (["$42,000", "$1.5", "?"], None, [42000, 1.5, None]),
        (["80.5 %", "3%"], None, [80.5, 3]),
        (["1 234 567", "1\u00a0234,5"], None, [1234567, 1234.5]),
        (["1'234.50", "\u22123"], None, [1234.5, -3]),
    ],
)
def test_numbers_as_people_write_them(texts, form, numbers):
    found, wrong = read_numbers(pa.array(texts), form)
    assert found.to_pylist() == numbers
    assert not wrong.true_count


@pytest.mark.parametrize(
    ("texts", "beginning"),
    [
        (
            ["1.5"] * 1499 + ["-"],
            "1,499 of 1,500 values of `a` are numbers; `-` is not. It is read",
        ),
        (["1.5"] * 99 + ["1x5"], "99 of 100 values of `a` are numbers; `1x5` is not."),
        (["1.5", "2.5", None], "2 of 2 values of `a` are numbers. It is read as text with 2"),
        (["5 %", "4"] * 9, "18 of 18 values of `a` are numbers, but not all with one decimal mark"),
        (["1.5"] * 99 + ["<1"], "99 of 100 values of `a` are numbers; `<1` is not. It is read"),
        (["<18", "<65", ">65"], ""),
        (["01", "02", "13"], ""),
        (["1", "2", "X"], ""),
        ([None, None], ""),
    ],
)
def test_text_that_is_nearly_numbers(texts, beginning):
    note = nearly_numbers("a", pa.array(texts, pa.string()))
    assert note.startswith(beginning)
    assert bool(note) == bool(beginning)
