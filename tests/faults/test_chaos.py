"""Commands killed at random file events, on a disk and on object storage: nothing is lost.

``DISTFMS_CHAOS`` sets the number of kills on each; of 1,000 each takes about a second.
"""

import os
import random
import signal
import uuid

import pytest

from tests.faults.chaos import Life
from tests.s3_here import S3

N_KILLS = int(os.environ.get("DISTFMS_CHAOS", "20"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * N_KILLS)
@pytest.mark.parametrize("storage", ["disk", "s3"])
def test_killed_at_random_file_events(storage, request, tmp_path):
    def begin(name):
        (tmp_path / name).mkdir()
        if storage == "disk":
            return Life(tmp_path / name, str(tmp_path / name / "runs"), {})
        service = request.getfixturevalue("s3_variables")
        place = service.bucket(f"chaos-{uuid.uuid4().hex[:8]}")
        return Life(tmp_path / name, f"{place}/runs", service.variables)

    undisturbed = begin("undisturbed")
    expected = [undisturbed.seen()]
    n_events = []
    for command in undisturbed.commands():
        assert undisturbed.obey(command) == 0, undisturbed.said
        expected.append(undisturbed.seen())
        n_events.append(undisturbed.n_events)
    chance = random.Random(storage)
    n_kills = 0
    n_lives = 0
    while n_kills < N_KILLS:
        n_lives += 1
        life = begin(f"life-{n_lives}")
        for step, command in enumerate(life.commands()):
            before, after = expected[step : step + 2]
            done = False
            for _ in range(2):
                at = chance.randint(1, n_events[step])
                code = life.obey(command, at)
                assert code in (0, -signal.SIGKILL), life.said
                n_kills += code != 0
                seen = life.seen()
                seen.require_between(before, after)
                # A change of the current model is one step, and must not be made twice.
                done = code == 0 or (command[0] == "models" and seen == after)
                if done:
                    break
            if not done:
                assert life.obey(command) == 0, life.said
            assert life.seen() == after, command
    for said in tmp_path.glob("*.said"):
        assert S3("").variables["AWS_SECRET_ACCESS_KEY"] not in said.read_text()
    print(f"{n_kills} kills in {n_lives} lives, {sum(n_events)} events each")
