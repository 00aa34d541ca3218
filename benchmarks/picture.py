"""Draw the picture of the README: answer, key numbers and first chart of a report, as one SVG.

Run with ``python benchmarks/picture.py [SPEC] [OUT]``; the defaults make the README's picture.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
import textwrap
from pathlib import Path

from whole_job import distfms

ROOT = Path(__file__).resolve().parents[1]
WIDTH, TOP, CHART = 860, 152, (820, 340)


def texts(page: str, pattern: str) -> list[str]:
    """Return what a pattern finds in the page, without tags."""
    matches = re.findall(pattern, page, flags=re.DOTALL)
    return [html.unescape(re.sub("<.*?>", "", text)).strip() for text in matches]


def picture(page: str) -> str:
    """Return one SVG of a report's answer, key numbers and first chart."""
    colours = re.search(r"(:root \{.*?\n\})\n(@media[^{]*dark.*?\n\})", page, flags=re.DOTALL)
    chart = re.search(r'class="scroll"[^>]*>\s*(<svg.*?</svg>)\s*</div>', page, flags=re.DOTALL)
    if not (colours and chart):
        raise SystemExit("the report has no chart")
    headline = textwrap.wrap(texts(page, "<h1>(.*?)</h1>")[0], 76)
    values = texts(page, r'<span class="value">(.*?)</span>')
    labels = texts(page, r'<span class="label">(.*?)</span>')
    words = [
        f'<text x="20" y="{34 + 28 * n}" class="head">{html.escape(line)}</text>'
        for n, line in enumerate(headline)
    ]
    step = (WIDTH - 40) / len(values)
    for n, (value, label) in enumerate(zip(values, labels, strict=True)):
        x = 20 + n * step
        words.append(f'<text x="{x:.0f}" y="112" class="value">{html.escape(value)}</text>')
        short = textwrap.shorten(label, int(step / 6), placeholder="…")
        words.append(f'<text x="{x:.0f}" y="132" class="label">{html.escape(short)}</text>')
    inner = chart.group(1).replace(
        "<svg ", f'<svg x="20" y="{TOP}" width="{CHART[0]}" height="{CHART[1]}" ', 1
    )
    style = f"""{colours.group(1)}
{colours.group(2)}
text {{ font-family: var(--sans); fill: var(--ink); }}
.head {{ font: 600 23px var(--serif); }}
.value {{ font: 600 20px var(--serif); }}
.label {{ font-size: 12px; fill: var(--muted); }}"""
    height = TOP + CHART[1] + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">\n'
        f"<style>\n{style}\n</style>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="8" style="fill: var(--card)"/>\n'
        + "\n".join([*words, inner, "</svg>\n"])
    )


def main() -> None:
    spec = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "jobs/sequence-blood-tests.yaml"
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / ".github/report.svg"
    with tempfile.TemporaryDirectory(prefix="distfms-bench-") as folder:
        distfms("run", spec, Path(folder))
        page = next(Path(folder).glob("*/latest/report.html")).read_text(encoding="utf-8")
    out.parent.mkdir(exist_ok=True)
    out.write_text(picture(page), encoding="utf-8")
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
