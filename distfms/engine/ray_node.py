"""Whether this machine is a node of a Ray cluster, as Ray asks of a driver's machine."""

from __future__ import annotations

import time

from distfms.errors import EngineError

_PAUSE_S = 0.5


def require_node(address: str, timeout_s: float) -> None:
    """Raise EngineError when no node of a cluster runs on this machine.

    Ray would look for one for a minute, and then say only that it failed to connect.

    Parameters
    ----------
    address : str
        ``host:port`` of the cluster's head, which answers.
    timeout_s : float
        How long to wait for a node that is just being started.

    Raises
    ------
    EngineError
        With the ways there are from a machine outside the cluster.
    """
    last_s = time.monotonic() + timeout_s
    while not _is_node(address, timeout_s):
        if time.monotonic() > last_s:
            host = address.rpartition(":")[0]
            raise EngineError(
                f"This machine is no node of the Ray cluster at {address}. Submit the job instead "
                f"(`distfms submit SPEC --address http://{host}:8265`), connect as a client "
                f"(ray://{host}:10001, if the head serves clients), or make this machine a node: "
                f"`ray start --address={address}`."
            )
        time.sleep(_PAUSE_S)


def _is_node(address: str, timeout_s: float) -> bool:
    """Compare the nodes that run here with those that the head holds to be alive."""
    try:
        from ray._private import services
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

        here = {bytes.fromhex(node) for node in services.find_node_ids()}
    except (ImportError, AttributeError):
        return True  # a later release without these: Ray will say itself, only later
    if not here:
        return False
    channel = init_grpc_channel(address)
    try:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        request = gcs_service_pb2.GetAllNodeInfoRequest()
        nodes = stub.GetAllNodeInfo(request, timeout=timeout_s).node_info_list
    except Exception:
        return True  # no answer in time says nothing about this machine
    finally:
        channel.close()
    alive = gcs_pb2.GcsNodeInfo.GcsNodeState.ALIVE
    return any(node.node_id in here and node.state == alive for node in nodes)
