"""`distfms schedule`: retrain at set times, one job after the other, until told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from distfms.errors import DistfmsError, SpecError
from distfms.runs.events import Say
from distfms.runs.folder import encode, write_atomic
from distfms.runs.interrupts import handled
from distfms.store.places import locked_file

#: A last start that lies further ahead than this was entered by a clock that went wrong.
_AHEAD = timedelta(days=1)
#: Seconds by which a start may be late without having been missed.
_LATE_S = 90.0


@dataclass(frozen=True)
class Times:
    """When to start: `cron` has five fields, in the time zone; see `parse_times`."""

    cron: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime:
        """Return the first start after a moment, both in UTC."""
        return self._next(moment, reverse=False)

    def before(self, moment: datetime) -> datetime:
        """Return the last start at or before a moment."""
        return self._next(moment + timedelta(seconds=1), reverse=True)

    def _next(self, moment: datetime, reverse: bool) -> datetime:
        from cronsim import CronSim

        start: datetime = next(CronSim(self.cron, moment.astimezone(self.zone), reverse=reverse))
        return start.astimezone(UTC)


def parse_times(cron: str, zone: str) -> Times:
    """Check a cron expression and the name of a time zone.

    Raises
    ------
    SpecError
    """
    from cronsim import CronSimError

    try:
        times = Times(cron, ZoneInfo(zone))
    except (ValueError, KeyError, OSError) as error:
        raise SpecError(
            f"--zone {zone!r} is not a time zone this machine knows; write UTC or, for example, "
            "Europe/Berlin."
        ) from error
    try:
        if len(cron.split()) != 5:
            raise CronSimError("it does not have five fields")
        times.after(datetime.now(UTC))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "that time never comes"
        raise SpecError(
            f"--cron {cron!r} cannot be read ({reason}). Write minute, hour, day of the month, "
            'month and day of week, such as "0 3 * * *" for 3:00 every night.'
        ) from error
    return times


@dataclass
class Scheduler:
    """Runs commands at set times, one after the other.

    Attributes
    ----------
    times : Times
    commands : mapping of str to sequence of str
        By the name of what they do; run in this order at each time.
    health : Path, optional
        JSON file that says what goes on. With it starts are known that were missed while no
        scheduler ran, and a second scheduler of this file is refused.
    say : callable
    look_s : float
        Seconds between two looks at the clock, which may be set meanwhile; the health file is no
        older.
    """

    times: Times
    commands: Mapping[str, Sequence[str]]
    health: Path | None = None
    say: Say = print
    look_s: float = 20.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _child: subprocess.Popen[bytes] | None = None
    _unwritten: bool = False
    _state: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Start the commands at their times until SIGTERM or SIGINT comes.

        Raises
        ------
        EngineError
            If another scheduler uses the same health file.
        """
        # What is under way ends in good order.
        with self._alone(), handled((signal.SIGTERM, signal.SIGINT), lambda *_: self.stop()):
            self._state = {"cron": self.times.cron, "zone": str(self.times.zone), "jobs": {}}
            last = self._last_start()
            while not self._stop.is_set():
                start = self._due(last)
                if self._wait_until(start):
                    break
                last = start
                self._state["last_start"] = start.isoformat()
                self._run_all()
            self._tell("stopped")
            self.say("Stopped.")

    def stop(self) -> None:
        """End as soon as the job that is running has ended, and tell it to."""
        self._stop.set()
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.terminate()

    def clock(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    # --- when ---

    def _last_start(self) -> datetime:
        """Return when the last start was due, by the health file; now where there is none."""
        now = self.clock()
        if self.health is None or not self.health.exists():
            return now
        try:
            content = json.loads(self.health.read_bytes())
            self._state["jobs"] = dict(content["jobs"])
            if content.get("last_start") is None:
                return now
            last = datetime.fromisoformat(content["last_start"]).astimezone(UTC)
            self._state["last_start"] = content["last_start"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            self.say(
                f"Replacing {self.health}, which is damaged ({reason}); missed starts are lost."
            )
            return now
        return last

    def _due(self, last: datetime) -> datetime:
        """Return the next start, at once where some were missed since the last one."""
        now = self.clock()
        last = now if last - now > _AHEAD else last
        start = self.times.after(last)
        latest = self.times.before(now)
        if latest > last and (now - start).total_seconds() > _LATE_S:
            self.say(f"Missed the start of {latest:%Y-%m-%d %H:%M} UTC: starting now.")
            return latest
        return start

    def _wait_until(self, start: datetime) -> bool:
        """Wait for a time of the clock, which may be set; return whether to stop."""
        self._state["next_start"] = start.isoformat()
        while (remaining := (start - self.clock()).total_seconds()) > 0:
            self._tell("waiting")
            if self._stop.wait(min(remaining, self.look_s)):
                return True
        return self._stop.is_set()

    # --- what ---

    def _run_all(self) -> None:
        for name, command in self.commands.items():
            if self._stop.is_set():
                return
            job: dict[str, Any] = {"started": self.clock().isoformat()}
            self._state["jobs"][name] = job
            self._tell("running", job=name)
            self.say(f"Starting {name}")
            code = self._launched(command)
            job |= {"ended": self.clock().isoformat(), "exit_code": code}
            self.say(f"{name} ended with code {code}: {_MEANING.get(code, 'stopped or failed')}")

    def _launched(self, command: Sequence[str]) -> int:
        """Run a command in its own process, so that its memory is freed afterwards."""
        self._child = child = subprocess.Popen(command)
        try:
            if self._stop.is_set():
                child.terminate()
            while True:
                try:
                    return child.wait(timeout=self.look_s)
                except subprocess.TimeoutExpired:
                    self._tell(self._state["state"])
        finally:
            self._child = None
            if child.returncode is None:
                child.terminate()
                child.wait()

    # --- surroundings ---

    def _alone(self) -> Any:
        if self.health is None:
            return nullcontext()
        busy = (
            f"Another scheduler writes {self.health}. Stop it, or name another file with --health."
        )
        return locked_file(self.health.with_name(f".{self.health.name}.lock"), busy)

    def _tell(self, state: str, job: str | None = None) -> None:
        """Write the health file."""
        self._state |= {"state": state, "updated": self.clock().isoformat()}
        if job is not None or state != "running":
            self._state["job"] = job
        if self.health is not None:
            try:
                write_atomic(self.health, encode("health.json", self._state))
                self._unwritten = False
            except (OSError, DistfmsError) as error:
                if not self._unwritten:
                    self.say(f"The health file cannot be written; jobs continue: {error}")
                self._unwritten = True


_MEANING = {0: "done", 1: "failed", 2: "bad spec or data", 3: "refused by its gate"}


def retrain_commands(specs: Sequence[Path], options: Sequence[str]) -> dict[str, list[str]]:
    """Return the command that retrains each spec."""
    start = [sys.executable, "-m", "distfms.cli", "retrain"]
    return {str(spec): [*start, str(spec), *options] for spec in specs}
