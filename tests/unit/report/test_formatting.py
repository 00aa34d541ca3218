import math

import pytest

from distfms.report import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (1_090_422, "1,090,422"),
        (28.4, "28.4"),
        (0.654321, "0.6543"),
        (123.456, "123.5"),
        (-0.5, "−0.5"),
        (1e-5, "1e−5"),
        (2.5e12, "2.5e12"),
        (True, "–"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        ("7", "–"),
    ],
)
def test_number(value, text):
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("share", "error", "text"),
    [
        (0.652, 0.0213, "65 ± 2%"),
        (0.652, 0.0097, "65 ± 1%"),
        (0.652, 0.0061, "65.2 ± 0.6%"),
        (0.6523, 0.00012, "65.23 ± 0.01%"),
        (0.97, 0.00001, "97%"),
        (0.65, None, "65%"),
        (None, 0.1, "–"),
    ],
)
def test_a_share_has_the_digits_that_its_error_leaves(share, error, text):
    assert formatting.interval(share, error).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        # A digit more only near an end, and where it tells something.
        (formatting.percent, 0.714, "71%"),
        (formatting.percent, 0.97, "97%"),
        (formatting.percent, 0.974, "97.4%"),
        (formatting.percent, 0.0321, "3.2%"),
        (formatting.percent, -0.0321, "−3.2%"),
        (formatting.percent, 1.0, "100%"),
        (formatting.percent, 0, "0%"),
        (lambda value: formatting.count(value, "file"), 1, "1 file"),
        (lambda value: formatting.count(value, "entry", "entries"), 2, "2 entries"),
        (lambda value: formatting.fixed(value, 2), -0.0001, "0.00"),
    ],
)
def test_units(write, value, text):
    assert write(value).replace("\u00a0", " ").replace(",", "") == text


def test_shorten_keeps_beginning_and_end():
    name = "a_rather_long_attribute_name_17"
    assert formatting.shorten(name, 40) == name
    cut = formatting.shorten(name, 12)
    assert len(cut) == 12
    assert cut.startswith("a_rather")
    assert cut.endswith("_17")
    assert formatting.shorten("two\nlines") == "two lines"
