"""`svc webhook trigger` with a devnet in a process of its own, and the listener as the receiver."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.cli.merchant.webhooks import EVENTS
from tests.cli.merchant.events import SECRET
from tests.cli.merchant.test_webhooks import SVC, Listening, secret_file
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode, free_port

pytestmark = [pytest.mark.socket, pytest.mark.slow]

TOKEN = "management-token-of-these-tests-0123"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trigger")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[RunningNode]:
    nodes = Nodes(folder)
    webhooks = {"enabled": "true", "manageToken": f'"{TOKEN}"', "signingSecret": f'"{SECRET}"'}
    webhooks |= {"allowHttpCallbacks": "true", "allowPrivateCallbacks": "true"}
    yield nodes.start(*DEVNET, *(f"--set=commerce.webhooks.{name}={value}" for name, value in webhooks.items()))
    nodes.stop()


@pytest.fixture(scope="module")
def listening(folder: Path) -> Iterator[Listening]:
    listening = Listening(folder, "--secret-file", secret_file(folder))
    yield listening
    listening.close()


def triggered(node: RunningNode, event: str, callback: str) -> subprocess.CompletedProcess[str]:
    words = (SVC, "webhook", "trigger", event, "--callback", callback)
    environ = {**os.environ, "SVCD_URL": node.url, "SVCD_DATA_DIR": str(node.data_dir), "SVC_MANAGE_TOKEN": TOKEN}
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("event", [event for event in EVENTS if event != "node.alarm"])
def test_an_event_takes_the_whole_way_to_the_receiver(node: RunningNode, listening: Listening, event: str) -> None:
    told = triggered(node, event, f"http://127.0.0.1:{listening.port}/")
    assert told.returncode == 0, told.stderr
    assert f"UTC  {event}: " in told.stdout
    heard = listening.out()
    assert re.search(rf"UTC  {event}  trigger-[0-9a-f]{{8}}  .*{told.stdout.split()[-1]}", heard), heard


def test_a_receiver_that_does_not_answer_is_told(node: RunningNode) -> None:
    callback = f"http://127.0.0.1:{free_port()}/"
    told = triggered(node, "payment.confirmed", callback)
    assert told.returncode == 1
    assert told.stderr == (
        f"Error: payment.confirmed was made, and the receiver at {callback} has not accepted it: connect\n"
    )
