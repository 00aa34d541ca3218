"""The cable of a Ray worker is pulled out while a job runs."""

from tests.hosts import clusters, lab

pytestmark = lab.marks(600)


def test_worker_cut_off(lan, ray, expected):
    """The head takes the node for lost, and does its work again."""
    log = lan.logs / "worker-cut.log"
    words = ("submit", lan.job("cut"), "--address", ray, "--wait")
    waiting = clusters.start_distfms(lan.client, *words, log=log)
    clusters.wait_for_line(log, "Writing /tmp/shared")
    lan.worker.plug(False)
    clusters.wait_for_nodes(lan.head, 1)
    assert waiting.wait(400) == 0, log.read_text()
    assert lan.succeeded("cut", expected)
