from __future__ import annotations

import pytest

from distfms.report import (
    Code,
    Column,
    Figure,
    KeyNumber,
    KeyNumbers,
    KeyValues,
    Page,
    Section,
    Table,
    Text,
)
from distfms.report.page import isolate_ids
from tests.unit.report.checks import check_page

SVG = (
    '<svg viewBox="0 0 1 1"><defs><clipPath id="p1"></clipPath></defs>'
    '<g id="a" clip-path="url(#p1)"><use xlink:href="#p1"/></g></svg>'
)


def full_page() -> Page:
    page = Page("job & co", "method", headline="Two < three", footer="made here")
    page.section("", KeyNumbers([KeyNumber("71 %", "explained", "held out")]))
    page.section(
        "What was found",
        Text("First `code` here.\n\nSecond.", tone="note"),
        Figure(SVG, "One figure."),
        Figure(SVG, "The same again."),
        Table(["Name", "Loss"], [["a", 1.25], ["b", None]], "A table.", emphasis=(1,)),
    )
    return page.section("What was found", KeyValues({"Rows": 1004, "Cached": True}), Code("a < b"))


def test_page_is_whole_self_contained_and_has_unique_ids() -> None:
    text = check_page(full_page().render())
    for expected in ("Two < three", "job & co", "Figure 2. The same again.", "1 004", "a < b"):
        assert expected in text


def test_page_is_the_same_bytes_every_time() -> None:
    assert full_page().render() == full_page().render()


def test_content_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    page = Page(evil, evil, headline=evil, footer=evil)
    page.section(
        evil,
        Text(f"{evil} `{evil}`"),
        Table([evil], [[evil]], evil),
        KeyValues({evil: evil}),
        Code(evil),
        Figure(SVG, evil),
    )
    html = page.render()
    check_page(html)
    assert "<script" not in html


def test_headline_falls_back_to_the_title() -> None:
    assert "<h1>job</h1>" in Page("job").render()


def test_sections_with_one_title_have_their_own_anchors() -> None:
    html = full_page().render()
    assert 'id="what-was-found"' in html
    assert 'href="#what-was-found-2"' in html


def test_sections_may_be_given_at_once() -> None:
    sections = [Section("One", [Text("1")])]
    assert Page("job", sections=sections).render() == Page("job").section("One", Text("1")).render()


def test_page_serves_both_colour_schemes_and_forbids_requests() -> None:
    html = full_page().render()
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert "default-src 'none'" in html


def test_numbers_are_right_aligned_and_text_is_not() -> None:
    table = Table(["Name", "n", "Mixed", Column("Share", "percent")], [["a", 1, "x", 0.5]], "t")
    assert [numeric for _, numeric in table.heads()] == [False, True, False, True]
    html = Page("job").section("s", table).render()
    assert '<td>a</td><td class="n">1</td><td>x</td><td class="n">50\u00a0%</td>' in html


def test_column_without_any_value_is_text() -> None:
    table = Table(["Name"], [[None]], "t")
    assert table.heads() == [("Name", False)]
    assert table.cells()[0][0].text == "–"


def test_long_tables_scroll_and_short_ones_do_not() -> None:
    short = Page("job").section("s", Table(["i"], [[i] for i in range(16)], "t")).render()
    long = Page("job").section("s", Table(["i"], [[i] for i in range(17)], "t")).render()
    assert 'class="scroll long"' not in short
    assert 'class="scroll long"' in long


def test_long_names_are_cut_but_not_lost() -> None:
    name = "x" * 200
    html = Page("job").section("s", Table(["Name"], [[name]], "t")).render()
    assert f'title="{name}"' in html
    assert f"<td>{name}" not in html


def test_ragged_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 cells for 2 columns"):
        Table(["a", "b"], [[1, 2], [1]], "t")


def test_isolate_ids_touches_tags_only() -> None:
    svg = '<svg><g id="a"/><use href="#a"/><rect clip-path="url(#a)"/><text>id="a" #a</text></svg>'
    assert isolate_ids(svg, "f1-") == (
        '<svg><g id="f1-a"/><use href="#f1-a"/><rect clip-path="url(#f1-a)"/>'
        '<text>id="a" #a</text></svg>'
    )
