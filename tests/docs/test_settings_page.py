"""docs/settings.md is that of the schema and of conf/svcd.toml, and its example runs."""

import tomllib
from pathlib import Path

from svcd.config.layers import SECRETS_IN_ENVIRONMENT
from tests.docs.settings_page import MERCHANTS, PAGE, page, sentences, settings
from tests.process_level.pages import blocks_of, run


def test_the_page_is_as_the_code_makes_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_has_a_sentence_and_no_sentence_is_about_another() -> None:
    assert {setting.name for setting in settings()} == set(sentences())
    assert all(sentences().values())


def test_defaults_are_written_as_in_the_file() -> None:
    for setting in settings():
        default = setting.default.split("; on devnet ")[0].strip("`")
        assert default == "required" or list(tomllib.loads(f"{setting.key} = {default}")) == [setting.key]


def test_what_differs_on_devnet_is_shown() -> None:
    shown = {setting.name: setting.default for setting in settings()}
    assert shown["participation", "sweepAbove"] == '`"10000"`; on devnet `"100"`'
    assert shown["p2p", "allowPrivate"] == "`false`; on devnet `true`"
    assert shown[MERCHANTS, "tokenFile"] == "required"


def test_the_secrets_in_the_environment_are_named() -> None:
    assert all(f"`{name}`" in page() for name in SECRETS_IN_ENVIRONMENT)


def test_a_refused_configuration_makes_no_data_directory(tmp_path: Path) -> None:
    commands, printed = blocks_of("docs/settings.md", "sh", "text")
    assert run(commands.text, tmp_path) == printed.text
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]
