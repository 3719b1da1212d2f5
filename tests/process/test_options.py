"""The options of `twistd svcd`; tests/process_level/test_starting.py shows them under twistd."""

from pathlib import Path

import pytest
from attrs import evolve

from svcd.chain.params import MAINNET
from svcd.config.network_file import render_network_file
from svcd.tap import Options


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parsed(*arguments: str) -> Options:
    options = Options()
    options.parseOptions(list(arguments))
    return options


def test_without_options_and_without_a_file_the_defaults_hold() -> None:
    assert parsed().config.http.listen == "tcp:8645:interface=127.0.0.1"


def test_options_are_settings(tmp_path: Path) -> None:
    config = parsed(
        "--network=devnet",
        f"--data-dir={tmp_path}/d",
        "--listen=tcp:1",
        "--operator-listen=unix:/run/o",
        "--set=p2p.outbound=1",
        "--set=p2p.outbound=2",
    ).config
    assert config.network == "devnet"
    assert config.data_dir == tmp_path / "d"
    assert config.http.listen == "tcp:1"
    assert config.operator_socket == "unix:/run/o:mode=600"
    assert config.p2p.outbound == 2


def test_the_file_beside_the_working_directory_is_read_where_it_exists(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "svcd.toml").write_text("[p2p]\noutbound = 3")
    assert parsed().config.p2p.outbound == 3


def test_a_named_file_takes_its_place_and_options_win_over_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "svcd.toml").write_text("[p2p]\noutbound = 3")
    (tmp_path / "other.toml").write_text('[p2p]\nmaxInbound = 4\n[http]\nlisten = "tcp:5"')
    config = parsed("-c", "other.toml", "--listen", "tcp:6").config
    assert (config.p2p.outbound, config.p2p.max_inbound, config.http.listen) == (8, 4, "tcp:6")


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVCD_COMMERCE_WEBHOOKS_MANAGE_TOKEN", "t" * 32)
    assert parsed("--set=commerce.webhooks.enabled=true").config.commerce.webhooks.manage_token == "t" * 32


@pytest.mark.parametrize("option", ["--network=festival.toml", "--set=network=festival.toml", "--config=own/svcd.toml"])
def test_the_file_of_a_network_is_found_again_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """An option counts from the working directory at the start, a configuration file from its folder."""
    own = evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "svcd.toml").write_text('network = "festival.toml"')
    folder = tmp_path / "own" if option.startswith("--config") else tmp_path
    (folder / "festival.toml").write_text(render_network_file(own))
    options = parsed(option)
    monkeypatch.chdir("/")
    again = options.read_config()
    assert again == options.config
    assert (again.params, again.network) == (own, str(folder / "festival.toml"))


@pytest.mark.parametrize(
    "argument", ["--listen=x", "--set=x", "--config=none", "--network=none", "--network=none.toml"]
)
def test_a_bad_setting_ends_the_process_with_one_line(argument: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(argument)
    assert str(ended.value.code).startswith("svcd: ")
    assert "\n" not in str(ended.value.code)


def test_help_tells_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = capsys.readouterr().out
    for option in ("--config", "--data-dir", "--network", "--listen", "--operator-listen", "--set"):
        assert option in shown
