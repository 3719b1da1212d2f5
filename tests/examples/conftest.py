"""The settings of a shop."""

from pathlib import Path

import pytest

from tests.process_level.running import free_port

ADDRESS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
SECRET, OLD = "a-signing-secret-for-this-page-only-0123", "the-secret-before-it-of-thirty-two-characters"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A shop whose node does not answer."""
    node_url = f"http://127.0.0.1:{free_port()}"
    return {
        "NODE_URL": node_url,
        "PUBLIC_NODE_URL": node_url,
        "MANAGE_TOKEN": "t" * 32,
        "SIGNING_SECRETS": f"{SECRET} {OLD}",
        "ADDRESS": ADDRESS,
        "RATE": "0.5",
        "URL": "http://shop.example",
        "DATABASE": str(tmp_path / "shop.sqlite"),
        "PASSWORD": "open sesame",
    }
