"""A driver's machine has to be a node of the cluster; where it is none, that is said at once."""

import pytest

from distfms.engine.ray_node import require_node
from distfms.errors import EngineError


@pytest.fixture
def address(ray_session):
    import ray

    return ray.get_runtime_context().gcs_address


def test_a_node(address):
    require_node(address, 5.0)


# No node at all on this machine, and one of another cluster.
@pytest.mark.parametrize("found", [set(), {"ab" * 28}])
def test_no_node_of_this_cluster(address, monkeypatch, found):
    from ray._private import services

    monkeypatch.setattr(services, "find_node_ids", lambda: found)
    with pytest.raises(EngineError, match="no node of the Ray cluster at") as error:
        require_node(address, 1.0)
    host = address.rpartition(":")[0]
    for way in (f"--address http://{host}:8265", f"ray://{host}:10001", f"--address={address}"):
        assert way in str(error.value)
