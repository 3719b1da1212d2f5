"""A network that one member has founded, and the commands of its invitation."""

import re
from pathlib import Path
from typing import Final

from svcd.seed_file import SeedKind, render_seed
from tests.chains import key_of
from tests.process_level.conftest import Nodes
from tests.process_level.pages import run
from tests.process_level.running import RunningNode, free_port

FAST: Final = "--slots-per-block 2 --slot-seconds 1 --half-life-slots 20 --memory-kib 64 --initial-target 2^252"
"""Options of `svc network new` for blocks that take two seconds."""
_FENCED: Final = re.compile(r"^```\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def found(nodes: Nodes, folder: Path) -> RunningNode:
    """Anna's node on her network fest, of which fest.toml in the folder has the rules; it makes blocks."""
    key = folder / "anna" / "operator.key"
    key.parent.mkdir(mode=0o700)
    key.touch(mode=0o600)
    key.write_bytes(render_seed(key_of("anna").seed, SeedKind.BLOCK))
    run(f"svc network new fest {FAST} --defaults --producer {key_of('anna').public.hex()} 2>/dev/null", folder)
    port = free_port()
    return nodes.start(
        f"--network={folder / 'fest.toml'}",
        f"--set=http.publicUrl=http://127.0.0.1:{port}",
        "--set=p2p.allowPrivate=true",
        "--set=participation.enabled=true",
        "--set=participation.alone=true",
        name="anna",
        port=port,
    )


def commands(invitation: str) -> list[str]:
    """What an invitation tells to type: program, rules, hashes, start without and with root, peers of each."""
    return _FENCED.findall(invitation)
