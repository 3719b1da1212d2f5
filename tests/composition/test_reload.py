"""What a reload changes, what it leaves, and that a wrong configuration changes nothing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from svcd.composition.merchants import merchant_changes
from svcd.composition.reload import ReloadService
from svcd.config.layers import ConfigError
from svcd.config.loader import load
from svcd.config.schema import Commerce, Config
from svcd.node.threads import InlineWorker
from svcd.process.hangup import HangUp
from svcd.web.responses import HttpError
from tests.support import result_of

HOOKS = "[commerce.webhooks]\nenabled = true\n"


class Immediate:
    """Runs what comes from threads at once, and counts how often it is stopped."""

    stops = 0

    def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
        return call()

    def stop(self) -> None:
        self.stops += 1


class Reloading:
    """A service on a file that the test writes, and the merchants that it has been given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.applied: list[tuple[str, ...]] = []
        self.reactor = Immediate()
        self.at_terminal = False
        self.signal = HangUp(self.reactor, lambda: self.at_terminal)
        self.write(books="b")
        self.service = ReloadService(
            self.read(), read=self.read, worker=InlineWorker(), merchants=self.apply, signal=self.signal
        )

    def read(self) -> Config:
        return load(self.folder / "svcd.toml")

    async def apply(self, running: Commerce, new: Commerce) -> dict[str, object]:
        self.applied.append(tuple(each.name for each in new.all_merchants))
        changes = merchant_changes(running, new)
        changed = [{"name": name, "settings": list(keys)} for name, keys in changes.changed.items()]
        removed = [{"name": name, "watches": 0, "undelivered": 0} for name in changes.removed]
        return {"added": list(changes.added), "changed": changed, "removed": removed}

    def write(self, hooks: str = HOOKS, more: str = "", **merchants: str) -> None:
        """A configuration with these merchants, each with a letter for its token."""
        text = f"dataDir = '{self.folder}'\n"
        for name, letter in merchants.items():
            for file, content in ((f"{name}-token", letter * 32), (f"{name}-secret", f"s-{name}" * 16)):
                (self.folder / file).touch(mode=0o600)
                (self.folder / file).write_text(content)
            files = f'tokenFile = "{name}-token"\nsigningSecretFile = "{name}-secret"'
            text += f'[[commerce.merchants]]\nname = "{name}"\n{files}\n'
        (self.folder / "svcd.toml").write_text(f"{text}{hooks}{more}")

    def reload(self) -> dict[str, Any]:
        return result_of(Deferred.fromCoroutine(self.service.reload()))


@pytest.fixture
def reloading(tmp_path: Path) -> Reloading:
    return Reloading(tmp_path)


def test_the_answer_names_what_has_changed_and_what_waits(reloading: Reloading) -> None:
    reloading.write(books="c", music="m", more="maxWatches = 7\n[limits]\nconnections = 50\n")
    assert reloading.reload() == {
        "added": ["music"],
        "changed": [{"name": "books", "settings": ["token"]}],
        "removed": [],
        "left": ["[limits] connections", "[commerce.webhooks] maxWatches"],
    }
    assert reloading.service.config.limits.connections == 1000
    assert [each.token for each in reloading.service.config.commerce.all_merchants] == ["c" * 32, "m" * 32]
    reloading.write(music="m")
    assert [each["name"] for each in reloading.reload()["removed"]] == ["books"]
    assert reloading.reload() == {"added": [], "changed": [], "removed": [], "left": []}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"music": "b"}, "must differ from"),
        ({"music": ""}, "the token of the merchant music must have at least 32 characters and has 0"),
        ({"hooks": "[commerce.webhooks]\n"}, r"\[commerce.webhooks\] enabled must be true"),
        ({"more": "nonsense = 1\n"}, "nonsense is not known"),
    ],
)
def test_a_wrong_file_changes_nothing(reloading: Reloading, wrong: dict[str, str], why: str) -> None:
    before = reloading.service.config
    reloading.write(**{"books": "b", **wrong})
    with pytest.raises(HttpError) as error:
        reloading.reload()
    assert error.value.status == 409
    assert re.match(f"nothing has changed: .*{why}", error.value.sentence)
    assert (reloading.applied, reloading.service.config) == ([], before)


def test_a_node_in_the_foreground_ends_with_its_terminal(reloading: Reloading) -> None:
    reloading.at_terminal = True
    reloading.service.startService()
    reloading.signal._act()
    assert (len(reloading.applied), reloading.reactor.stops) == (1, 0), "a signal of somebody at the terminal"
    reloading.at_terminal = False
    reloading.signal._act()
    assert (len(reloading.applied), reloading.reactor.stops) == (1, 1)


def test_a_signal_reloads_while_the_service_runs(reloading: Reloading) -> None:
    reloading.signal._act()
    assert reloading.applied == []
    reloading.service.startService()
    reloading.write(books="b", music="m")
    reloading.signal._act()
    assert reloading.applied == [("books", "music")]
    reloading.write(hooks="[commerce.webhooks]\n", books="b")
    reloading.signal._act()
    result_of(Deferred.fromCoroutine(reloading.service.stopService()))
    reloading.signal._act()
    assert reloading.applied == [("books", "music")]


def test_the_merchants_part_may_refuse(reloading: Reloading) -> None:
    async def refuse(_running: Commerce, _new: Commerce) -> dict[str, object]:
        raise ConfigError("the webhooks' database does not answer: no")

    before = reloading.service.config
    service = ReloadService(
        before, read=reloading.read, worker=InlineWorker(), merchants=refuse, signal=reloading.signal
    )
    with pytest.raises(HttpError, match="nothing has changed: the webhooks' database does not answer: no"):
        result_of(Deferred.fromCoroutine(service.reload()))
    assert service.config is before
