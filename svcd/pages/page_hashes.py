"""The hashes of the wallet's page and of its files, which a release lists for `svc wallet page-check`.

Each line has a SHA-256 in hex, two spaces, and the path of a file, or ``/wallet/`` and a language. The page has several
lines for a language: without a warning about the node, and with each that a node can insert. What an operator
configures in it, the links of which shops are listed, is left empty. One line has the hash of the header that limits
what the page may load.
"""

import sys
from collections.abc import Iterator
from hashlib import sha256

from svcd.pages.layout import WARNINGS, with_warning
from svcd.pages.routes import POLICY_WITH_WORKER
from svcd.pages.static_files import PAGE, static_files, wallet_html
from svcd.pages.texts import load


def page_hashes() -> Iterator[tuple[str, str]]:
    """Hash and name of each form of the page and of each of its files."""
    files = static_files()
    template = files.html(PAGE)
    for catalogue in load():
        html = wallet_html(template, catalogue)
        for sentence in (None, *WARNINGS):
            yield _hash(with_warning(html, sentence, catalogue)), f"/wallet/ {catalogue.language}"
    yield _hash(POLICY_WITH_WORKER), "/wallet/ Content-Security-Policy"
    for path, data in sorted(files.linked_from(template).items()):
        yield _hash(data), path


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


if __name__ == "__main__":
    sys.stdout.writelines(f"{digest}  {name}\n" for digest, name in page_hashes())
