"""Reports in headless Chromium, over its debugging pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
#: Smallest text of a chart, in pixels as shown.
_READABLE = 9.0

#: What a page is asked, in the page.
_LOOK = """(() => {
  const shown = [...document.querySelectorAll("figure.chart svg")].filter(s => s.clientWidth > 0);
  const boxes = s => [...s.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const words = shown.map(boxes), tables = [...document.querySelectorAll("table")], saved = [];
  HTMLAnchorElement.prototype.click = function() { saved.push(decodeURIComponent(this.href)); };
  const misordered = tables.filter(t => {
    const head = t.tHead.querySelector(".n"), rows = t.tBodies[0].rows;
    t.closest("figure").querySelectorAll("button")[1].click();
    if (saved.at(-1).trim().split("\\n").length !== rows.length + 1) return true;
    head?.click();
    const found = [...rows].map(r => r.cells[head?.cellIndex ?? 0].dataset.v).filter(v => v);
    return head && found.some((v, i) => i && Number(found[i - 1]) < Number(v));
  });
  return JSON.stringify({
    charts: [document.querySelectorAll("figure.chart").length, shown.length],
    misordered: misordered.length,
    formulas: saved.flatMap(text => text.split("\\ufeff")[1].split("\\n"))
      .filter(line => /(^|,)"?([=@\\t]|[+-][^0-9])/.test(line)).length,
    empty: [...document.querySelectorAll("table")].filter(t => !t.tBodies[0].rows.length).length,
    overflow: Math.max(0, document.documentElement.scrollWidth - innerWidth),
    cut: words.flatMap((own, i) => own.filter(([t, b]) =>
      b.right > shown[i].getBoundingClientRect().right + 1
      || b.left < shown[i].getBoundingClientRect().left - 1).map(([t]) => t.textContent)),
    over: words.flatMap(own => own.flatMap(([t, b], i) => own.slice(i + 1)
      .filter(([_, other]) => over(b, other)).map(([o]) => t.textContent + " | " + o.textContent))),
    text: Math.min(...words.flatMap((own, i) => own.map(([t]) => parseFloat(
      getComputedStyle(t).fontSize) * shown[i].clientWidth / shown[i].viewBox.baseVal.width)), 99),
  });
})()"""


class Browser:
    """One Chromium; commands go to file descriptor 3, answers and events come from 4."""

    def __init__(self, folder: Path) -> None:
        ours = os.pipe()
        theirs = os.pipe()
        options = f"--headless --no-sandbox --disable-gpu --user-data-dir={folder}"
        command = f"exec {CHROMIUM} {options} --remote-debugging-pipe 3<&{ours[0]} 4>&{theirs[1]}"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(ours[0], theirs[1]), stderr=subprocess.DEVNULL
        )
        os.close(ours[0]), os.close(theirs[1])
        self._commands = ours[1]
        self._answers = theirs[0]
        self._rest = b""
        self._number = 0
        self.events = list[dict[str, Any]]()

    def close(self) -> None:
        """Stop Chromium."""
        self._process.kill()
        self._process.wait()
        os.close(self._commands), os.close(self._answers)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._answers, 1 << 20)
            assert received, "Chromium has ended"
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        self.events.append(found)
        return found

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def look(self, page: Path, width: int, dark: bool = False) -> dict[str, Any]:
        """Open a page and return what it looks like, with what it logged and requested."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self.events.clear()
        self.call("Page.navigate", session, url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._next()
        answer = self.call("Runtime.evaluate", session, expression=_LOOK)
        found: dict[str, Any] = json.loads(answer["result"]["value"])
        events = [(event.get("method"), event.get("params", {})) for event in self.events]
        found["logged"] = [
            told
            for name, told in events
            if name in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        ]
        asked = [p["request"]["url"] for name, p in events if name == "Network.requestWillBeSent"]
        found["asked"] = [url for url in asked if url != page.as_uri() and url[:5] != "data:"]
        self.call("Target.closeTarget", targetId=target)
        return found

    def check(self, page: Path, n_charts: int) -> None:
        """Require that a page of charts is whole and readable on a screen and on a telephone."""
        for width, dark in ((1200, True), (400, False)):
            found = self.look(page, width, dark)
            smallest = found.pop("text")
            assert found == {
                "charts": [n_charts, n_charts],
                **dict.fromkeys(("misordered", "formulas", "empty", "overflow"), 0),
                **{key: [] for key in ("cut", "over", "logged", "asked")},
            }, (page.name, width, found)
            assert smallest >= _READABLE, (page.name, width, smallest)
