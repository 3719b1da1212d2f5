"""The notes between two runs: whole or not at all, and a damaged file does not keep a node from starting."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogEvent, capturedLogs

from svcd.p2p.address_book import AddressEntry
from svcd.p2p.bans import Ban
from svcd.p2p.service import FORMAT, PeersFile, read_peers_file, with_checksum, write_peers_file

SECRET = "5e" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peers.json"


@pytest.fixture
def warnings() -> Iterator[list[LogEvent]]:
    """What is said to the operator."""
    with capturedLogs() as events:
        yield events


def notes(**changes: Any) -> PeersFile:
    entries = [
        AddressEntry(endpoint="http://192.0.2.1:8645", source="operator"),
        AddressEntry(
            endpoint="https://[2001:db8::1]",
            source="198.51.0.0/16",
            node_id="svcnode_" + "ab" * 16,
            height=7,
            last_seen=1_800_000_000.25,
            failures=2,
            next_try=1_800_000_020.5,
            verified=True,
            group="2001:db8::/32",
        ),
    ]
    kept = {
        "format": FORMAT,
        "secret": SECRET,
        "entries": entries,
        "anchors": ["https://[2001:db8::1]"],
        "bans": [
            Ban("node:svcnode_" + "cd" * 16, 1_800_086_400.0, "its block broke a rule", own=False),
            Ban("address:203.0.113.9", None, "", own=True),
        ],
    }
    return PeersFile(**(kept | changes))


def test_the_saved_file_is_loaded(path: Path) -> None:
    write_peers_file(path, notes())
    loaded = read_peers_file(path)
    assert loaded is not None
    assert asdict(loaded) == asdict(notes())


def test_there_may_be_none(path: Path, warnings: list[LogEvent]) -> None:
    assert read_peers_file(path) is None
    assert warnings == []


def test_the_file_is_its_owner_s(path: Path) -> None:
    """The secret in it is what keeps others from aiming at the book's buckets."""
    write_peers_file(path, notes())
    assert path.stat().st_mode & 0o777 == 0o600


def test_saving_replaces_the_file_whole(path: Path) -> None:
    write_peers_file(path, notes())
    before = path.read_bytes()
    write_peers_file(path, notes(entries=[]))
    assert path.read_bytes() != before
    assert [file.name for file in path.parent.iterdir()] == ["peers.json"]


def test_a_crash_while_saving_leaves_the_old_notes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_peers_file(path, notes())
    before = path.read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", die)
    with pytest.raises(KeyboardInterrupt):
        write_peers_file(path, notes(entries=[]))
    assert path.read_bytes() == before


def text_in(path: Path) -> str:
    """The JSON text in the file."""
    return path.read_text().partition("\n")[0]


def _edit(**changes: object) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | changes)


def _edit_entry(**changes: object) -> Callable[[str], str]:
    def edit(text: str) -> str:
        kept = json.loads(text)
        kept["entries"][0] |= changes
        return json.dumps(kept)

    return edit


DAMAGES: dict[str, Callable[[str], str]] = {
    "another form": lambda text: "[]",
    "no object": lambda text: "5",
    "a field too few": lambda text: json.dumps({"format": FORMAT}),
    "a field too many": _edit(colour="red"),
    "another format": _edit(format=FORMAT + 1),
    "a secret that is no hex": _edit(secret="x" * 64),
    "a secret that is too short": _edit(secret="5e"),
    "an endpoint that is a number": _edit_entry(endpoint=5),
    "a hint that nobody can be called at": _edit_entry(endpoint="http://a:22"),
    "an endpoint in another spelling": _edit_entry(endpoint="http://192.0.2.1:08645"),
    "an anchor in another spelling": _edit(anchors=["https://[2001:DB8::1]:443"]),
    "an entry with a field too many": _edit_entry(colour="red"),
    "a time that is none": _edit_entry(next_try="soon"),
    "a time that is no number": _edit_entry(next_try=float("nan")),
    "an anchor that is a number": _edit(anchors=[5]),
    "a price without an end": _edit(bans=[{"name": "node:a", "until": None, "why": "", "own": False}]),
    "a ban of another kind": _edit(bans=[{"name": "colour:red", "until": 1.0, "why": "", "own": False}]),
    "a ban of an endpoint in another spelling": _edit(
        bans=[{"name": "endpoint:http://EVIL.com", "until": None, "why": "", "own": True}]
    ),
    "a ban of no endpoint": _edit(bans=[{"name": "endpoint:http://a..b", "until": None, "why": "", "own": True}]),
    "a ban with a field too few": _edit(bans=[{"name": "node:a"}]),
    "a ban that is a name": _edit(bans=["node:a"]),
    "a ban whose owner is a number": _edit(bans=[{"name": "node:a", "until": 1.0, "why": "", "own": 1}]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_told_and_replaced(
    path: Path, warnings: list[LogEvent], damage: Callable[[str], str]
) -> None:
    write_peers_file(path, notes())
    path.write_text(with_checksum(damage(text_in(path))))
    assert read_peers_file(path) is None
    (told,) = warnings
    assert told["path"] == str(path)
    assert told["why"]
    write_peers_file(path, notes())
    assert read_peers_file(path) is not None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\0" * len(content),
        lambda content: content.partition(b"\n")[0],
        lambda content: content + b"\n",
    ],
)
def test_a_file_without_its_checksum_is_told(
    path: Path, warnings: list[LogEvent], damage: Callable[[bytes], bytes]
) -> None:
    write_peers_file(path, notes())
    path.write_bytes(damage(path.read_bytes()))
    assert read_peers_file(path) is None
    assert [told["why"] for told in warnings] == ["it is damaged, because its content does not have its checksum"]


@given(data=st.data())
def test_a_flipped_bit_is_never_another_ban_or_peer(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("notes") / "peers.json"
    write_peers_file(path, notes())
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert read_peers_file(path) is None


def test_a_file_that_cannot_be_read_is_told(path: Path, warnings: list[LogEvent]) -> None:
    path.mkdir()
    assert read_peers_file(path) is None
    assert len(warnings) == 1


def test_bytes_that_are_no_text_are_told(path: Path, warnings: list[LogEvent]) -> None:
    path.write_bytes(b"\xff\xfe{}")
    assert read_peers_file(path) is None
    assert len(warnings) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    st.sampled_from(["format", "secret", "entries", "anchors", "bans"]),
)
def test_the_node_starts_with_any_content_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, value: object, name: str
) -> None:
    path = tmp_path_factory.mktemp("notes") / "peers.json"
    write_peers_file(path, notes())
    path.write_text(with_checksum(json.dumps(json.loads(text_in(path)) | {name: value})))
    loaded = read_peers_file(path)
    if loaded is not None:
        assert len(bytes.fromhex(loaded.secret)) == 32
