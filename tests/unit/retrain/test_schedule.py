"""Schedules on a clock of the tests' own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from distfms.errors import EngineError, SpecError
from distfms.retrain import schedule as schedules
from distfms.retrain.schedule import Scheduler, parse_times
from distfms.store.places import locked_file


class Clock(threading.Event):
    """A clock that waiting moves; as the event that stops a scheduler, set after some starts."""

    def __init__(self, now, starts=3, takes=timedelta(minutes=5)):
        super().__init__()
        self.now = now
        self.left = starts
        self.takes = takes
        self.started = []

    def wait(self, seconds):
        self.now += timedelta(seconds=seconds)
        return False

    def launch(self, command):
        self.started.append(self.now)
        self.now += self.takes
        self.left -= 1
        if not self.left:
            self.set()
        return 3 if command == ["refused"] else 0


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(clock, cron="0 3 * * *", zone="UTC", **options):
    options = {"commands": {"job": ["done"]}, "say": lambda line: None, "look_s": 3600, **options}
    scheduler = Scheduler(parse_times(cron, zone), _stop=clock, **options)
    scheduler.clock = lambda: clock.now
    scheduler._launched = clock.launch
    scheduler.run()
    return [moment.strftime("%m-%d %H:%M") for moment in clock.started]


@pytest.mark.parametrize(
    ("now", "takes", "options", "starts"),
    [
        ("2026-01-01 12:00", 5, {}, "01-02 03:00, 01-03 03:00, 01-04 03:00"),
        # Berlin is at UTC+1 until 29 March 2026, then at UTC+2.
        ("2026-03-27 12:00", 5, {"zone": "Europe/Berlin"}, "03-28 02:00, 03-29 01:00, 03-30 01:00"),
        # Starts never overlap; missed ones are made up for once.
        ("2026-01-01 00:30", 150, {"cron": "0 * * * *"}, "01-01 01:00, 01-01 03:30, 01-01 06:00"),
    ],
)
def test_jobs_start_at_their_times(now, takes, options, starts):
    clock = Clock(at(now), takes=timedelta(minutes=takes))
    assert ", ".join(schedule(clock, **options)) == starts


def test_starts_missed_while_nothing_ran_are_known_from_the_health_file(tmp_path):
    health = tmp_path / "health.json"
    schedule(Clock(at("2026-01-01 12:00"), starts=1), health=health)
    assert json.loads(health.read_text())["last_start"] == "2026-01-02T03:00:00+00:00"
    found = schedule(Clock(at("2026-01-05 12:00"), starts=1), health=health)
    assert found == ["01-05 12:00"]


@pytest.mark.parametrize(
    ("content", "n_said"),
    [
        *(("", 1), ("[]", 1), ('{"last_start": 3}', 1), ('{"jobs": {}}', 0)),
        ('{"last_start": "2026-01-32T03:00:00", "jobs": {}}', 1),
        ('{"last_start": "2026-01-01T03:00:00+00:00", "jobs": [1]}', 1),
    ],
)
def test_a_damaged_health_file_is_said_and_written_anew(tmp_path, content, n_said):
    health = tmp_path / "health.json"
    messages = []
    health.write_text(content)
    schedule(Clock(at("2026-01-01 12:00"), starts=1), health=health, say=messages.append)
    assert sum("damaged" in line for line in messages) == n_said
    assert json.loads(health.read_text())["jobs"]["job"]["exit_code"] == 0


def test_a_health_file_that_cannot_be_written_for_a_while_stops_nothing(tmp_path, monkeypatch):
    health = tmp_path / "health.json"
    messages = []
    clock = Clock(at("2026-01-01 12:00"), starts=2)

    def write(*arguments, before=schedules.write_atomic):
        if clock.left == 2:
            raise OSError(28, "No space left on device")
        before(*arguments)

    monkeypatch.setattr(schedules, "write_atomic", write)
    assert len(schedule(clock, health=health, say=messages.append)) == 2
    assert sum("No space left" in line for line in messages) == 1
    assert json.loads(health.read_text())["jobs"]["job"]["exit_code"] == 0


def test_no_job_outlives_a_scheduler_that_fails(tmp_path, monkeypatch):
    scheduler = Scheduler(parse_times("* * * * *", "UTC"), {}, look_s=0.05)
    started = []

    def fail(state, job=None):
        started.append(scheduler._child)
        raise RuntimeError

    monkeypatch.setattr(scheduler, "_tell", fail)
    scheduler._state["state"] = "running"
    with pytest.raises(RuntimeError):
        scheduler._launched([sys.executable, "-c", "import time; time.sleep(60)"])
    assert started[0].returncode == -signal.SIGTERM


def test_two_schedulers_of_one_health_file_are_refused(tmp_path):
    with (
        locked_file(tmp_path / ".health.json.lock"),
        pytest.raises(EngineError, match="Another scheduler writes"),
    ):
        schedule(Clock(at("2026-01-01 12:00")), health=tmp_path / "health.json")


@pytest.mark.parametrize(
    ("cron", "zone", "message"),
    [
        *((cron, "UTC", "--cron") for cron in ("", "0 3 * *", "61 3 * * *", "0 0 31 2 *", "x")),
        *(("0 3 * * *", zone, "--zone") for zone in ("Europe/Nowhere", "", "../../etc/passwd")),
    ],
)
def test_wrong_times_and_zones_are_refused(cron, zone, message):
    with pytest.raises(SpecError, match=message):
        parse_times(cron, zone)


CHILD = """
import sys, time
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    pass
"""
PARENT = """
import sys
from distfms.retrain.schedule import Scheduler, parse_times
from datetime import datetime, timedelta, UTC
from pathlib import Path
times = parse_times("* * * * *", "UTC")
late = datetime.now(UTC) - timedelta(days=1)
health = Path(sys.argv[1])
health.write_text('{"last_start": "%s", "jobs": {}}' % late.isoformat())
Scheduler(times, {"job": [sys.executable, "-c", sys.argv[2]]}, health=health).run()
"""


def test_sigterm_ends_the_job_and_the_scheduler(tmp_path):
    health = tmp_path / "health.json"
    command = [sys.executable, "-u", "-c", PARENT, str(health), CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[-1] == "begun\n"
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0
    assert time.monotonic() - began < 20
    assert rest.endswith("Stopped.\n")
    content = json.loads(health.read_text())
    assert content["state"] == "stopped"
    assert content["jobs"]["job"]["exit_code"] == -signal.SIGTERM
