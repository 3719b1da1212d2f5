"""`svc devnet`: a chain on this computer to try payments with (README.md)."""

from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

import click

from svcd.cli.errors import CommandError
from svcd.cli.secure_files import write_new_file
from svcd.cli.session import Session

CONFIG: Final = Path(__file__).with_name("devnet.toml")
DEFAULT_DIR: Final = Path("devnet")
DEFAULT_PORT: Final = 18645
SECRETS: Final = ("manage-token", "signing-secret")
"""Files in the data directory: the token of merchants' routes, and the secret that signs webhooks."""
_SECRET_BYTES: Final = 32


@click.command()
@click.argument("data_dir", metavar="[DATA_DIR]", default=DEFAULT_DIR, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True, help="The port on 127.0.0.1."
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.IntRange(1, 3_600),
    help="Make a block by itself, too, after so many seconds.",
)
@click.pass_obj
def devnet(session: Session, data_dir: Path, port: int, every: int | None) -> None:
    """Run a private chain for tests until Ctrl-C: one node, which makes a block when `svc node mine` asks for it.

    It listens on 127.0.0.1 only and talks to no other node. The chain and two secrets for webhooks are in DATA_DIR
    (default: devnet); delete the folder to begin again.

    \b
    Example:
      svc devnet
      svc devnet --every 10
    In another terminal, in the same folder:
      export SVCD_URL=http://127.0.0.1:18645 SVCD_DATA_DIR=devnet
      svc wallet new --network devnet
      svc node faucet "$(svc wallet address)" 100
      svc node mine 1
    """
    _make_secrets(session, data_dir)
    url = f"http://127.0.0.1:{port}"
    greeting = (
        f"A devnet in {data_dir}, with explorer and wallet at {url}/ (Ctrl-C stops it). For svc in another terminal:\n"
        f"  export SVCD_URL={url} SVCD_DATA_DIR={data_dir.absolute()}"
    )
    listen = f"--listen=tcp:{port}:interface=127.0.0.1"
    by_itself = [] if every is None else [f"--set=participation.every={every}"]
    node = (f"--config={CONFIG}", f"--data-dir={data_dir}", listen, f"--greeting={greeting}", *by_itself)
    session.runtime.run_twistd(("-n", "--pidfile=", "svcd", *node))


def _make_secrets(session: Session, data_dir: Path) -> None:
    """Make the data directory and the missing secrets; raises CommandError."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{data_dir} cannot be made: {(error.strerror or str(error)).lower()}") from None
    for name in SECRETS:
        if not (data_dir / name).exists():
            secret = urlsafe_b64encode(session.runtime.random(_SECRET_BYTES)).rstrip(b"=")
            write_new_file(data_dir / name, secret + b"\n")
