"""The operator's interface at a port on loopback: its token, and the names under which it answers."""

from http.client import HTTPConnection

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, free_port

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def asked(port: int, host: str, token: str) -> int:
    """The status of an operator's report that is asked for under a name."""
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request("GET", "/operator/status", headers={"Host": host, "Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("options", "name"), [((), "localhost"), (('--set=http.allowedHosts=["node.lan"]',), "node.lan")]
)
def test_a_port_answers_its_token_under_its_names(nodes: Nodes, options: tuple[str, ...], name: str) -> None:
    port = free_port()
    node = nodes.start(*DEVNET, f"--operator-listen=tcp:{port}:interface=127.0.0.1", *options)
    token = (node.data_dir / "operator.token").read_text().strip()
    assert asked(port, f"{name}:{port}", token) == 200
    assert asked(port, name, "another") == 401
    assert asked(port, "evil.example", token) == 421
    assert node.operator("/operator/status").status == 200, "the socket is there too, for `svc node`"
