"""A cluster whose slot lies on another node than the one we know."""

import pytest

from cogworker import Cogworker, RedisUnavailable
from cogworker.inspector import Inspector

from support.processes import eventually
from support.server import Server, free_port

SLOTS = 16384


class Node(Server):
    """A node of a cluster, in a folder of its own."""

    def __init__(self, folder):
        folder.mkdir()
        super().__init__(folder)
        self.bus_port = free_port()

    def options(self):
        return {
            **super().options(),
            "--cluster-enabled": "yes",
            "--cluster-announce-ip": "127.0.0.1",
            "--cluster-port": str(self.bus_port),
        }


@pytest.fixture
def nodes(tmp_path):
    nodes = [Node(tmp_path / name) for name in ("a", "b")]
    try:
        for node in nodes:
            node.start()
        a, b = (node.client for node in nodes)
        b.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        a.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1].bus_port)
        eventually(lambda: a.cluster("INFO")["cluster_state"] == "ok")
        yield nodes
    finally:
        for node in nodes:
            node.kill()
            node.client.close()


def test_calls_go_to_the_node_that_has_the_slot(nodes, workers):
    settings = {"redis_url": nodes[0].url, "namespace": "{cogworker}"}
    app = Cogworker(**settings)
    look = Inspector(app)
    workers.write("@cog.job\nasync def job(): await job.aenqueue_in(3600)\n")
    worker = workers.start(**settings)
    app.push({"class": "tasks.job"})
    eventually(lambda: look.stats()[:1] == (1,))

    assert look.stats().scheduled == 1
    assert worker.stop() == 0
    assert nodes[1].client.zcard("{cogworker}:schedule") == 1
    app.close()


def test_when_that_node_is_gone_the_configured_one_is_asked_again(nodes):
    app = Cogworker(redis_url=nodes[0].url, namespace="{cogworker}")
    app.push({"class": "x"})
    nodes[1].kill()

    with pytest.raises(RedisUnavailable):
        app.push({"class": "x"})
    nodes[1].start()
    for node in nodes:
        eventually(lambda node=node: node.client.cluster("INFO")["cluster_state"] == "ok")
    app.push({"class": "x"})

    assert Inspector(app).stats().enqueued == 2
    app.close()
