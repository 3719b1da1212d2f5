"""What all commands share: help, options before and after the command, exit statuses."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc
from tests.cli.terminal import OTHER, Fixed, Terminal, site_of


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group below `command`, with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            loaded = inner.load() if isinstance(inner, LazyCommand) else inner
            yield from commands(loaded, (*words, name))


DOCS = Path(__file__).parent.parent.parent / "docs"
TREE = dict(commands(svc))
LEAVES = [words for words, command in TREE.items() if not isinstance(command, click.Group)]


def test_the_command_tree() -> None:
    assert {" ".join(words) for words in LEAVES} == {
        "status",
        "block",
        "balance",
        "tx",
        "export",
        "pay-request",
        "verify",
        "confirmations",
        "wallet new",
        "wallet address",
        "wallet import",
        "wallet export",
        "wallet send",
        "wallet pay",
        "wallet refund",
        "wallet balance",
        "wallet history",
        "wallet page-check",
        "webhook register",
        "webhook show",
        "webhook cancel",
        "webhook list",
        "webhook events",
        "webhook redeliver",
        "webhook trigger",
        "webhook watch",
        "webhook listen",
        "webhook move",
        "webhook restored",
        "devnet",
        "network new",
        "network show",
        "network invite",
        "help",
        "db check",
        "db verify",
        "db rebuild",
        "db compact",
        "node status",
        "node mine",
        "node faucet",
        "node backup",
        "node key address",
        "node key encrypt",
        "node key import",
        "node key new",
        "node limits",
        "node merchants reload",
        "node reload",
        "node participation",
        "node reorganise",
        "node peers add",
        "node peers ban",
        "node peers unban",
    }


@pytest.mark.parametrize("words", TREE, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_with_an_example(terminal: Terminal, words: tuple[str, ...], flag: str) -> None:
    told = terminal.ok(*words, flag).out
    assert f"Usage: {' '.join(('svc', *words))} " in told
    assert not words or f"Example:\n    svc {' '.join(words)}" in told
    if words in LEAVES:
        assert ("--json" in told) == (words not in (("devnet",), ("help",)))


def test_the_help_of_a_group_shows_the_first_sentence_of_each_command() -> None:
    for words, group in TREE.items():
        for name, command in group.commands.items() if isinstance(group, click.Group) else ():
            assert command.get_short_help_str(200) == TREE[(*words, name)].get_short_help_str(200)


def test_help_lists_the_pages_of_the_documentation_and_shows_one(terminal: Terminal) -> None:
    listed = terminal.ok("help").out
    pages = sorted(DOCS.glob("*.md"))
    assert [line.split()[0] for line in listed.splitlines()[2:]] == [page.stem for page in pages]
    assert ["payments", "Payments"] in [line.split() for line in listed.splitlines()]
    assert terminal.ok("help", "payments").out == (DOCS / "payments.md").read_text()
    assert terminal.misuse("help", "paiments").startswith(
        f"Invalid value for 'TOPIC': there is no page 'paiments'; choose from {pages[0].stem}, {pages[1].stem}, "
    )


def test_the_version(terminal: Terminal) -> None:
    assert terminal.ok("--version").out == "svc, version 0.0.1\n"


@pytest.mark.parametrize("words", [("nonsense",), ("status", "too", "much"), ("tx",), ("--url",), ("wallet", "steal")])
def test_incorrect_calls_exit_with_status_2(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal.misuse(*words)


FROM_0, FROM_1 = "must be an integer from 0 to 9007199254740991", "must be an integer from 1 to 9007199254740991"
AMOUNT = 'amount must be a decimal such as "25" or "0.5", at most 8 decimal places'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("block", "x"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "-1"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "-1", "--json"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "1.0"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "\uff11"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "9007199254740992"), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("block", "9" * 5000), f"Invalid value for 'HEIGHT': {FROM_0}"),
        (("node", "mine", "0"), f"Invalid value for 'BLOCKS': {FROM_1}"),
        (("node", "mine", "-12"), f"Invalid value for 'BLOCKS': {FROM_1}"),
        (("node", "reorganise", "-1"), f"Invalid value for 'DEPTH': {FROM_1}"),
        (("node", "faucet", OTHER, "-1"), f"Invalid value for 'AMOUNT': {AMOUNT}"),
        (("wallet", "send", OTHER, "-0.5"), f"Invalid value for 'AMOUNT': {AMOUNT}"),
        (("verify", "order-1", OTHER, "-0.5"), f"Invalid value for 'AMOUNT': {AMOUNT}"),
        (("wallet", "send", OTHER, "1", "--nonce", "-1"), f"Invalid value for '--nonce': {FROM_0}"),
        (("wallet", "send", OTHER, "1", "--fee", "-1"), f"Invalid value for '--fee': {AMOUNT}"),
    ],
)
def test_invalid_numbers_are_explained(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert terminal.misuse(*words) == sentence


@pytest.mark.parametrize(
    "words", [("block", "1", "--jsn"), ("block", "--jsn"), ("node", "faucet", OTHER, "1", "--jsn")]
)
def test_misspelled_options_get_a_suggestion(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal.misuse(*words) == "No such option '--jsn'. Did you mean '--json'?"


def test_a_misspelled_option_beside_a_negative_number_is_rejected(terminal: Terminal) -> None:
    told = terminal.misuse("wallet", "send", OTHER, "1", "--reference", "-1", "--yse")
    assert told == "Got unexpected extra argument (--yse)"


@pytest.fixture
def away(terminal: Terminal) -> Terminal:
    """A terminal that cannot connect to any node."""
    terminal.public.failure = terminal.operator.failure = OSError(111, "refused")
    return terminal


ENVIRONMENT = {"SVCD_URL": "http://from.environment", "SVCD_DATA_DIR": "from/environment"}


@pytest.mark.parametrize(
    ("words", "env", "url"),
    [
        (("status",), None, "http://127.0.0.1:8645"),
        (("status",), ENVIRONMENT, "http://from.environment"),
        (("--url", "http://in.front/", "status"), ENVIRONMENT, "http://in.front"),
        (("status", "--url", "http://behind"), ENVIRONMENT, "http://behind"),
        (("--url", "http://in.front", "status", "--url", "http://behind"), None, "http://behind"),
    ],
)
def test_precedence_of_the_url(away: Terminal, words: tuple[str, ...], env: dict[str, str] | None, url: str) -> None:
    assert away.failure(*words, env=env).startswith(f"cannot connect to {url}: connection refused")


@pytest.mark.parametrize(
    ("words", "env", "socket"),
    [
        (("node", "status"), None, "data/operator.sock"),
        (("node", "status"), ENVIRONMENT, "from/environment/operator.sock"),
        (("--data-dir", "/in/front", "node", "status"), ENVIRONMENT, "/in/front/operator.sock"),
        (("node", "status", "--data-dir", "behind"), ENVIRONMENT, "behind/operator.sock"),
    ],
)
def test_precedence_of_the_data_directory(
    away: Terminal, words: tuple[str, ...], env: dict[str, str] | None, socket: str
) -> None:
    assert away.failure(*words, env=env).startswith(f"cannot connect to {socket}: connection refused")
    assert away.sockets == [socket]


def test_the_url_is_validated_before_and_after_the_command(terminal: Terminal) -> None:
    for words in (("--url", "localhost:8645", "status"), ("status", "--url", "localhost:8645")):
        assert "a node's URL is http:// or https://" in terminal.misuse(*words)
    assert "a node's URL is" in terminal.misuse("status", env={"SVCD_URL": "localhost:8645"})


def test_operator_requests_go_to_the_socket(terminal: Terminal) -> None:
    resource = Fixed((200, b'{"ok":true,"status":{"height":"1"}}'))
    terminal.operator.site = site_of(resource, terminal.clock)
    assert terminal.ok("node", "status").out == "height  1\n"
    assert [path for path, _ in resource.seen] == [b"/operator/status"]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_is_documented(words: tuple[str, ...]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
    assert re.search(rf"^\| `svc {' '.join(words)}[ `]", page, re.MULTILINE)
