"""The cable of a Ray head is pulled out while a driver on another node is at work."""

import json
import re
import time

from tests.hosts import clusters, lab
from tests.hosts.clusters import distfms

pytestmark = lab.marks(600)


def test_head_cut_off(lan, ray, expected):
    """A driver on another node gives up soon; the job goes on elsewhere."""
    log = lan.logs / "head-cut.log"
    given = ("--engine", "ray", "--address", f"{lan.head.address}:{clusters.GCS}")
    driver = clusters.start_distfms(lan.worker, "run", lan.job("headless"), *given, log=log)
    clusters.wait_for_line(log, "Writing /tmp/shared")
    lan.head.plug(False)
    start_s = time.monotonic()
    assert driver.wait(150) == 1, log.read_text()
    # Soon, or after a minute: when it hangs in a call of Ray's that never ends by itself.
    assert time.monotonic() - start_s < 120
    assert re.search("its head is gone|has been unreachable", log.read_text())
    resumed = distfms(lan.head, "run", lan.job("headless"), *given)
    lan.head.plug(True)
    assert resumed.returncode == 0, resumed.stderr
    assert lan.succeeded("headless", expected)
    manifest = json.loads((lan.run_folder("headless") / "manifest.json").read_text())
    assert manifest["attempt"] == 2
