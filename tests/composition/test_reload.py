"""What a reload changes, what it leaves, and that a wrong configuration changes nothing."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from svcd.chain.address import encode_address
from svcd.chain.params import MAINNET, ProducerChange
from svcd.composition.merchants import merchant_changes
from svcd.composition.reload import ReloadableParts, ReloadService
from svcd.config.layers import ConfigError
from svcd.config.loader import load
from svcd.config.network_file import render_network_file
from svcd.config.schema import Commerce, Config
from svcd.node.threads import InlineWorker
from svcd.process.certificates import ServerCertificates
from svcd.process.hangup import HangUp
from svcd.web.responses import HttpError
from tests.process.certificate_files import CertificateFiles
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
        self.certificates = ServerCertificates({}, lambda: 0.0)
        self.limited: list[int] = []
        self.levels: list[str] = []
        self.confirmed: list[bool] = []
        self.service = self.service_with(self.apply)

    def service_with(self, merchants: Callable[[Commerce, Commerce], Awaitable[dict[str, object]]]) -> ReloadService:
        parts = ReloadableParts(
            merchants=merchants,
            limits=lambda config: self.limited.append(config.limits.connections),
            log_level=self.levels.append,
            certificates=self.certificates,
            clock=lambda: self.confirmed.append(True),
        )
        return ReloadService(self.read(), read=self.read, worker=InlineWorker(), parts=parts, signal=self.signal)

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
    more = "maxWatches = 7\n[limits]\nconnections = 50\n[log]\nlevel = 'warn'\nformat = 'json'\n[pages]\nonly = true\n"
    reloading.write(books="c", music="m", more=more)
    assert reloading.reload() == {
        "added": ["music"],
        "changed": [{"name": "books", "settings": ["token"]}],
        "removed": [],
        "settings": ["[limits] connections", "[pages] only", "[log] level"],
        "certificates": [],
        "left": ["[commerce.webhooks] maxWatches", "[log] format"],
    }
    assert (reloading.limited, reloading.levels) == ([50], ["warn"])
    assert (reloading.service.config.limits.connections, reloading.service.config.pages.only) == (50, True)
    assert [each.token for each in reloading.service.config.commerce.all_merchants] == ["c" * 32, "m" * 32]
    reloading.write(music="m")
    assert [each["name"] for each in reloading.reload()["removed"]] == ["books"]
    assert reloading.confirmed == []
    result_of(Deferred.fromCoroutine(reloading.service.reload(trust_clock=True)))
    assert reloading.confirmed == [True]
    nothing: list[str] = []
    names = ("added", "changed", "removed", "settings", "certificates", "left")
    assert reloading.reload() == dict.fromkeys(names, nothing)


def test_a_changed_network_file_waits_for_a_restart(reloading: Reloading) -> None:
    one, other = (encode_address(bytes([number]) * 20, "fest") for number in (1, 2))
    own = attrs.evolve(
        MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest", producers=(one,)
    )
    file = reloading.folder / "festival.toml"
    file.write_text(render_network_file(own))
    settings = reloading.folder / "svcd.toml"
    settings.write_text('network = "festival.toml"\n' + settings.read_text())
    reloading.service.config = reloading.read()
    assert reloading.reload()["left"] == []
    changed = attrs.evolve(own, changes=(ProducerChange(height=9, producers=(other,)),))
    file.write_text(render_network_file(changed))
    assert reloading.reload()["left"] == ["network"]
    assert reloading.reload()["left"] == ["network"]
    (reloading.folder / "renamed.toml").write_text(file.read_text())
    settings.write_text(settings.read_text().replace("festival.toml", "renamed.toml"))
    assert reloading.reload()["left"] == ["network"]
    settings.write_text(settings.read_text().replace("renamed.toml", "devnet"))
    assert "network" in reloading.reload()["left"]
    file.write_text(file.read_text().replace('minimumFee = "0.0001"', 'minimumFee = "0.0002"'))
    settings.write_text(settings.read_text().replace('"devnet"', '"festival.toml"'))
    with pytest.raises(HttpError, match=r"festival\.toml, line .*: with another rule it is another network"):
        reloading.reload()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"music": "b"}, "must differ from"),
        ({"music": ""}, "the file must have one line and contain only the secret"),
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
    assert not reloading.confirmed
    assert (reloading.applied, reloading.limited, reloading.service.config) == ([], [], before)


def test_the_clock_is_confirmed_although_the_file_is_wrong(reloading: Reloading) -> None:
    reloading.write(books="b", more="nonsense = 1\n")
    with pytest.raises(HttpError, match=r"the clock is trusted, and nothing else has changed: .*nonsense is not"):
        result_of(Deferred.fromCoroutine(reloading.service.reload(trust_clock=True)))
    assert reloading.confirmed == [True]


def test_webhooks_are_switched_on_and_off_by_a_restart(reloading: Reloading) -> None:
    reloading.write("[commerce.webhooks]\n", "[limits]\nconnections = 50\n", books="c")
    changes = reloading.reload()
    assert (changes["settings"], changes["changed"]) == (["[limits] connections"], [])
    assert changes["left"] == ["[commerce.webhooks] enabled", "[commerce] merchants"]
    assert [each.token for each in reloading.service.config.commerce.all_merchants] == ["b" * 32]


def test_certificates_are_loaded_again_and_broken_ones_change_nothing(reloading: Reloading, tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "tls")
    reloading.certificates = files.loaded()
    service = reloading.service = reloading.service_with(reloading.apply)
    assert reloading.reload()["certificates"] == []
    files.write(days=30)
    [renewed] = reloading.reload()["certificates"]
    assert (renewed["file"], renewed["ends"]) == (str(files.certificate), files.ends)
    files.certificate.write_text("no PEM")
    reloading.write(books="b", music="m")
    with pytest.raises(
        HttpError, match=r"nothing has changed: .*cert\.pem and .*key\.pem are no certificate and its key"
    ):
        reloading.reload()
    assert reloading.applied == []
    assert [each.name for each in service.config.commerce.all_merchants] == ["books"]


def test_a_node_in_the_foreground_ends_with_its_terminal(reloading: Reloading) -> None:
    reloading.at_terminal = True
    reloading.service.startService()
    reloading.signal._act()
    assert (len(reloading.limited), reloading.reactor.stops) == (1, 0), "a signal of somebody at the terminal"
    reloading.at_terminal = False
    reloading.signal._act()
    assert (len(reloading.limited), reloading.reactor.stops) == (1, 1)


def test_a_signal_reloads_while_the_service_runs(reloading: Reloading) -> None:
    reloading.signal._act()
    assert reloading.applied == []
    reloading.service.startService()
    reloading.write(books="b", music="m")
    reloading.signal._act()
    assert reloading.applied == [("books", "music")]
    reloading.write(hooks="[commerce.webhooks]\n", books="b")
    reloading.signal._act()
    result_of(reloading.service.stopService())
    reloading.signal._act()
    assert reloading.applied == [("books", "music")]


def test_the_merchants_part_may_refuse(reloading: Reloading) -> None:
    async def refuse(_running: Commerce, _new: Commerce) -> dict[str, object]:
        raise ConfigError("the webhooks' database does not answer: no")

    service = reloading.service_with(refuse)
    before = service.config
    reloading.write(music="m", more="[limits]\nconnections = 50\n")
    with pytest.raises(HttpError, match="nothing has changed: the webhooks' database does not answer: no"):
        result_of(Deferred.fromCoroutine(service.reload()))
    assert service.config is before
    assert reloading.limited == []
