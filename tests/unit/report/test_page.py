from distfms.report.page import (
    Code,
    Figure,
    KeyNumber,
    KeyNumbers,
    KeyValues,
    Page,
    PageSection,
    Table,
    Text,
)
from tests.unit.report.checks import check_page

SVG = '<svg viewBox="0 0 1 1"><path d="M0,0"/></svg>'


def one_block(block):
    return Page("job", sections=[PageSection("s", [block])]).render()


def full_page():
    results = [
        Text("First `code` here.\n\nSecond.", tone="note"),
        Figure(SVG, "One figure."),
        Figure(SVG, "The same again."),
        Table([{"Name": "a", "Loss": 1.25}, {"Name": "b"}], "A table.", emphasis=(1,)),
    ]
    sections = [
        PageSection("", [KeyNumbers([KeyNumber("71%", "explained", "held out")])]),
        PageSection("What was found", results),
        PageSection("What was found", [KeyValues({"Rows": 1004, "Cached": True}), Code("a < b")]),
    ]
    return Page("job & co", "method", "Two < three", sections, "made here")


def test_page_is_whole_self_contained_and_the_same_every_time():
    html = full_page().render()
    text = check_page(html)
    for expected in ("Two < three", "job & co", "Figure 2. The same again.", "1,004", "a < b"):
        assert expected in text
    # Colour schemes, paper, no requests; an anchor for each of two sections of one title.
    for expected in (
        "prefers-color-scheme: dark",
        "@media print",
        "default-src 'none'",
        'id="section-1"',
        'href="#section-2"',
    ):
        assert expected in html
    assert full_page().render() == html


def test_content_is_escaped():
    evil = "<script>alert(1)</script>"
    blocks = [
        Text(f"{evil} `{evil}`"),
        Table([{evil: evil}], evil),
        KeyValues({evil: evil}),
        Code(evil),
        Figure(SVG, evil),
    ]
    html = Page(evil, evil, evil, [PageSection(evil, blocks)], evil).render()
    check_page(html)
    assert evil not in html


def test_numbers_are_right_aligned_and_text_is_not():
    row = {"Name": "a", "n": 1, "Mixed": True, "Share": 0.5, "Empty": None}
    html = one_block(Table([row], "t", {"Share": "percent"}))
    assert '<td>a</td><td class="n" data-v="1">1</td><td>yes</td>' in html
    assert '<td class="n" data-v="0.5">50%</td></tr>' in html
    assert '<th scope="col">Mixed</th><th scope="col" class="n">Share</th></tr>' in html
