"""What is looked at beside a backup is what the node writes: the wallet may not import the rooms that name the files.

How it is shown is tried in test_backup_commands.py.
"""

from pathlib import Path

from svcd.commerce.desk import FILE as WEBHOOKS
from svcd.config.schema import Config
from svcd.store.mempool_store import FILE as MEMPOOL
from svcd.store.unfinished import unfinished_name
from svcd.wallet.growth import Growth, growth_of


def test_the_files_are_those_of_the_node(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data")
    folder = tmp_path / "copy"
    partial = unfinished_name(folder)
    for place in (config.data_dir, partial):
        place.mkdir()
    for size, name in ((1, config.chain_file.name), (20, WEBHOOKS), (300, MEMPOOL)):
        (partial / name).write_bytes(bytes(size))
        (config.data_dir / name).write_bytes(bytes(size * 100))
    assert growth_of(config.data_dir, folder) == Growth(copied=321, whole=32100)
