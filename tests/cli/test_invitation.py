"""The text of an invitation: what is in it, and that neither mail nor chat nor a shell spoils it."""

import re
import shlex
import tomllib

import pytest
from attrs import evolve

from svcd.chain.params import ProducerChange
from svcd.cli.invitation import ADDRESS, Invitation, Seed, invitation_text
from svcd.config.network_file import parse_network_file
from svcd.net.targets import BadTarget, Endpoint
from tests.chains import COIN, FESTIVAL, address_of

MEMBERS = tuple(address_of(name, "fest") for name in ("alice", "bob", "carol"))
PARAMS = evolve(
    FESTIVAL,
    producers=MEMBERS[:2],
    allocations=((MEMBERS[0], 100 * COIN),),
    changes=(ProducerChange(height=9, producers=MEMBERS[1:]),),
)
FIRST = Seed("https://festival.example.org", "svcnode_" + "a" * 32)
SECOND = Seed("http://[2001:4860:4860::8888]:8645", "svcnode_" + "b" * 32)
AT_HOME = Seed("http://10.0.0.7:8645", "svcnode_" + "c" * 32, "in its local network")
INVITATION = Invitation(params=PARAMS, node_id=FIRST.node_id, seeds=(FIRST, SECOND))
WITH_ALL = evolve(
    INVITATION,
    seeds=(AT_HOME,),
    repository="https://git.example.org/it's.git",
    file_url="https://festival.example.org/f.toml?a=1&b=2",
)


def blocks(invitation: Invitation) -> list[str]:
    """What the text has between two lines of three backquotes."""
    return re.findall(r"^```\n(.*?)\n```$", invitation_text(invitation), re.MULTILINE | re.DOTALL)


def words(command: str) -> list[str]:
    """What a shell makes of a command; each line that ends in a backslash goes on in the next."""
    return shlex.split(command.replace("\\\n", ""))


@pytest.mark.parametrize("invitation", [INVITATION, WITH_ALL], ids=["least", "all"])
def test_mail_and_chat_leave_the_text_as_it_is(invitation: Invitation) -> None:
    lines = invitation_text(invitation).splitlines()
    assert all(line.isascii() and line == line.strip() for line in lines)
    # What a mail program may break is the list of a list, where TOML allows it.
    long = [line for line in lines if len(line) > 78]
    assert [line.partition(" = ")[0] for line in long] in ([], ["multiplierSchedule"])


def test_it_says_what_to_compare() -> None:
    text = invitation_text(INVITATION)
    assert f"\n\n{PARAMS.genesis_hash.hex()}\n\n" in text
    assert f"\n\n{PARAMS.changes_hash.hex()}\n\n" in text
    assert "Read the genesis hash and the changes hash to" in text
    assert f"has the name\n\n{FIRST.node_id}\n" in text
    assert f"\n{FIRST.url}\n{FIRST.node_id}\n\n{SECOND.url}\n{SECOND.node_id}\n\n1. GET" in text
    assert "these first:" in text
    assert "this one first:" in invitation_text(WITH_ALL)


def test_without_a_list_of_producers_there_is_little_to_compare() -> None:
    params = evolve(PARAMS, changes=(), producers=())
    everybody = invitation_text(evolve(INVITATION, params=params))
    assert f"\n\n{params.genesis_hash.hex()}\n\nThe key" in everybody
    assert "changes hash" not in everybody
    assert "Read the genesis hash to" in everybody


def test_the_rules_in_it_are_those_of_the_file() -> None:
    first, *lines, last = INVITATION.rules.splitlines(keepends=True)
    assert (first, last) == ("cat >festival.toml <<'END'\n", "END")
    assert "END\n" not in lines
    assert parse_network_file("".join(lines).encode(), "invitation") == PARAMS
    assert not any(line.startswith("#") for line in lines)


def test_a_file_on_the_web_is_fetched() -> None:
    assert words(WITH_ALL.rules) == ["curl", "-fsS", "-o", "festival.toml", WITH_ALL.file_url]


def test_the_program_that_was_fetched_shows_what_to_compare() -> None:
    install, show = INVITATION.compare.split(" &&\n")
    assert words(install) == ["make", "-C", "svcd", ".venv/installed"]
    assert words(show) == "svcd/.venv/bin/svc network show festival.toml | grep hash".split()


def test_a_repository_is_cloned_if_it_is_known() -> None:
    assert words(WITH_ALL.program) == ["git", "clone", WITH_ALL.repository, "svcd"]
    assert blocks(WITH_ALL)[0] == WITH_ALL.program
    assert "git clone" not in invitation_text(INVITATION)
    assert "the member who invites you gives its address" in invitation_text(INVITATION)


def test_each_command_is_in_the_text() -> None:
    assert set(blocks(INVITATION)) == {
        INVITATION.rules,
        INVITATION.compare,
        INVITATION.clone,
        INVITATION.debian,
        "svcd/.venv/bin/svc --data-dir festival-data node peers",
        "svc --data-dir /var/lib/svcd node peers",
    }


def test_the_settings_of_a_node_in_a_clone() -> None:
    options = words(INVITATION.clone)
    assert options[:4] == ["svcd/.venv/bin/twistd", "-n", "--pidfile=", "svcd"]
    assert options[4:] == [
        "--network=festival.toml",
        "--data-dir=festival-data",
        "--listen=tcp:8645",
        f'--set=http.publicUrl="http://{ADDRESS}:8645"',
        f'--set=p2p.seeds=["{FIRST.url}",\n"{SECOND.url}"]',
    ]
    assert words(WITH_ALL.clone)[-2:] == [f'--set=p2p.seeds=["{AT_HOME.url}"]', "--set=p2p.allowPrivate=true"]


def test_the_settings_of_a_node_on_debian() -> None:
    settings = [step for step in WITH_ALL.debian.split(" &&\n") if "svcd.toml" in step]
    printf, pattern, *lines, _redirection = words(settings[0])
    assert (printf, pattern) == ("printf", r"%s\n")
    assert tomllib.loads("\n".join(lines)) == {
        "network": "network.toml",
        "http": {"publicUrl": f"http://{ADDRESS}:8645"},
        "p2p": {"seeds": [AT_HOME.url], "allowPrivate": True},
    }
    assert "allowPrivate" not in INVITATION.debian


def test_whoever_forgets_the_address_is_told() -> None:
    with pytest.raises(BadTarget, match="must have a host name"):
        Endpoint(f"http://{ADDRESS}:8645")


def test_an_address_at_home_is_called_so() -> None:
    assert "(This address leads to it only in its local network.)" in invitation_text(WITH_ALL)
    assert "leads to it only" not in invitation_text(INVITATION)
