"""Words and keyfiles go both ways between the browser and the command line; what is wrong with them is said."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chain import PASSWORD, Account
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT

pytestmark = [pytest.mark.socket, pytest.mark.slow]

STORED = """
async () => {
  const database = await new Promise((done) => {
    const opening = indexedDB.open("svc-wallet");
    opening.onsuccess = () => done(opening.result);
  });
  const all = (store) => new Promise((done) => {
    const asking = database.transaction(store).objectStore(store).getAll();
    asking.onsuccess = () => done(asking.result);
  });
  const stored = { stores: [...database.objectStoreNames], keyfile: await all("keyfile") };
  database.close();
  const elsewhere = localStorage.length + sessionStorage.length + document.cookie.length;
  return { ...stored, elsewhere, databases: (await indexedDB.databases()).map(({ name }) => name) };
}
"""
CHECKED = """
async () => {
  const database = await new Promise((done) => {
    const opening = indexedDB.open("svc-chain");
    opening.onsuccess = () => done(opening.result);
  });
  const store = database.transaction("blocks").objectStore("blocks");
  const get = (asking) => new Promise((done) => { asking.onsuccess = () => done(asking.result); });
  const [keys, blocks] = await Promise.all([get(store.getAllKeys()), get(store.getAll())]);
  database.close();
  return [keys, JSON.stringify(blocks, (_, value) => (typeof value === "bigint" ? `${value}` : value))];
}
"""
"""What the page keeps of the chain."""
EXCHANGE = """
async (keyfile) => {
  const database = await new Promise((done) => {
    const opening = indexedDB.open("svc-wallet");
    opening.onsuccess = () => done(opening.result);
  });
  const change = database.transaction("keyfile", "readwrite");
  const store = change.objectStore("keyfile");
  const [key] = await new Promise((done) => {
    const asking = store.getAllKeys();
    asking.onsuccess = () => done(asking.result);
  });
  if (store.keyPath === null) store.put(keyfile, key);
  else store.put(keyfile);
  await new Promise((done) => { change.oncomplete = done; });
  database.close();
}
"""


@pytest.fixture
def svc(tmp_path: Path) -> Callable[..., str]:
    """``svc("wallet", "address")``: what the command line prints."""

    def run(*words: object) -> str:
        environment = ENVIRONMENT | {"SVC_WALLET_PASSWORD": PASSWORD}
        command = [str(each) for each in (BIN / "svc", *words)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def kept(vectors: Path) -> Any:
    """Words and keyfiles that both sides must agree on."""
    return json.loads((vectors / "wallet.json").read_text())


def address_of(wallet: WalletPage) -> str:
    wallet.navigate("Receive")
    return wallet.tell("#receive-address")


def test_words_and_keyfile_of_the_browser_open_on_the_command_line(
    watched: Watched, svc: Callable[..., str], tmp_path: Path
) -> None:
    wallet = WalletPage.opened(watched)
    wallet.page.click("#create-start")
    words = wallet.words()
    wallet.page.click("#words-done")
    wallet.answer_quiz(words)
    wallet.choose_password()
    downloaded = wallet.download("#download-keyfile", tmp_path / "downloaded.json")
    wallet.page.click("#keyfile-done")
    wallet.view("home")
    address = address_of(wallet)

    svc("wallet", "import", "--from", "downloaded.json", "--keyfile", "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == downloaded
    assert svc("wallet", "address", "--keyfile", "copy.json").strip() == address
    svc("wallet", "export", "--keyfile", "copy.json", "--to", "exported.json")
    assert (tmp_path / "exported.json").read_bytes() == downloaded

    paper = tmp_path / "words.txt"
    paper.touch(0o600)
    paper.write_text(" ".join(words))
    svc("wallet", "import", "--words-from", paper, "--network", "devnet", "--keyfile", "words.json")
    assert svc("wallet", "address", "--keyfile", "words.json").strip() == address

    wallet.navigate("Settings")
    assert wallet.download("#settings-keyfile", tmp_path / "again.json") == downloaded


def test_words_and_keyfile_of_the_command_line_open_in_the_browser(
    watch: Callable[..., Watched], svc: Callable[..., str], tmp_path: Path
) -> None:
    svc("wallet", "new", "--network", "devnet", "--keyfile", "new.json", "--words-to", "words.txt")
    address = svc("wallet", "address", "--keyfile", "new.json").strip()

    by_file = WalletPage.opened(watch())
    by_file.bring(tmp_path / "new.json")
    assert "svc wallet export --browser --to FILE" in by_file.error("keyfile-argon2id")
    svc("wallet", "export", "--browser", "--keyfile", "new.json", "--to", "browser.json")
    by_file.bring(tmp_path / "browser.json")
    by_file.view("home")
    assert address_of(by_file) == address
    by_file.navigate("Settings")
    again = by_file.download("#settings-keyfile", tmp_path / "again.json")
    assert again == (tmp_path / "browser.json").read_bytes()

    by_words = WalletPage.opened(watch(), "/wallet/#import")
    by_words.view("import")
    by_words.page.fill("#import-words", (tmp_path / "words.txt").read_text())
    by_words.page.click("#import-words-done")
    by_words.choose_password()
    by_words.page.click("#keyfile-done")
    by_words.view("home")
    assert address_of(by_words) == address


def test_the_browser_keeps_the_locked_key_a_block_and_nothing_else(wallet: WalletPage, account: Account) -> None:
    wallet.page.wait_for_selector("#home-checked >> text=Checked against the chain")
    stored = wallet.page.evaluate(STORED)
    assert account.seed.hex() not in json.dumps(stored)
    assert [keyfile["address"] for keyfile in stored["keyfile"]] == [account.address]
    assert set(stored["keyfile"][0]) == {"address", "cipher", "format", "kdf", "network", "publicKey"}
    assert stored["stores"] == ["keyfile", "payments"]
    assert (sorted(stored["databases"]), stored["elsewhere"]) == (["svc-chain", "svc-wallet"], 0)
    keys, blocks = wallet.page.evaluate(CHECKED)
    [block] = json.loads(blocks)
    assert (keys, set(block)) == (["devnet"], {"head", "stateRoot"})
    assert set(block["head"]) == {"hash", "height", "slot", "clock", "work", "mountains"}


def test_faults_on_the_way_to_a_new_wallet(watched: Watched) -> None:
    wallet = WalletPage.opened(watched, "/wallet/#create")
    words = wallet.words()
    wallet.page.click("#words-done")
    wallet.answer_quiz(["zoo" if word != "zoo" else "zebra" for word in words])
    wallet.error("quiz")
    wallet.page.click("#quiz-back")
    assert wallet.words() == words
    wallet.page.click("#words-done")
    wallet.answer_quiz(words)
    wallet.view("password")
    wallet.page.fill("#new-password", "too short")
    wallet.page.fill("#new-password-again", "too short")
    wallet.page.click("#password-done")
    wallet.error("password-short")
    wallet.page.fill("#new-password", PASSWORD)
    wallet.page.click("#password-done")
    wallet.error("password-mismatch")
    wallet.choose_password()


def test_words_that_are_wrong(watched: Watched, kept: Any) -> None:
    wallet = WalletPage.opened(watched, "/wallet/#import")
    wallet.view("import")
    for wrong in ("zoo " * 24, "only four words here", kept["wallets"][1]["words"].replace(" ", " x", 1)):
        wallet.page.fill("#import-words", wrong)
        wallet.page.click("#import-words-done")
        wallet.error("words")
    wallet.page.fill("#import-words", kept["wallets"][1]["words"].upper())
    wallet.page.click("#import-words-done")
    wallet.choose_password()
    wallet.page.click("#keyfile-done")
    wallet.view("home")
    assert address_of(wallet) == kept["wallets"][1]["address"]["devnet"]


def test_keyfiles_that_do_not_open(watched: Watched, kept: Any, account: Account, tmp_path: Path) -> None:
    right = account.keyfile(tmp_path)
    files = {
        "damaged-keyfile": right.read_text()[:-30],
        "keyfile-of-other-network": next(each["file"] for each in kept["keyfiles"] if each["network"] == "mainnet"),
        "wrong-password": right.read_text(),
    }
    wallet = WalletPage.opened(watched, "/wallet/#import")
    wallet.view("import")
    for code, text in files.items():
        path = tmp_path / f"{code}.json"
        path.write_text(text)
        wallet.page.set_input_files("#import-file", path)
        wallet.page.fill("#import-password", "not the password")
        wallet.page.click("#import-file-done")
        wallet.error(code)
    wallet.page.fill("#import-password", PASSWORD)
    wallet.page.click("#import-file-done")
    wallet.view("home")


def test_a_kept_key_of_the_other_network_is_not_lost(wallet: WalletPage, kept: Any, tmp_path: Path) -> None:
    other = next(each["file"] for each in kept["keyfiles"] if each["network"] == "mainnet")
    wallet.page.evaluate(EXCHANGE, json.loads(other))
    wallet.page.reload()
    wallet.view("stopped")
    wallet.error("keyfile-of-other-network")
    assert json.loads(wallet.download("#stopped-download", tmp_path / "other.json")) == json.loads(other)
    wallet.page.click("#stopped-remove")
    wallet.view("welcome")


def test_unlocking_and_giving_up(wallet: WalletPage) -> None:
    wallet.page.click("#lock")
    wallet.unlock("not the password")
    wallet.error("wrong-password")
    wallet.unlock()
    wallet.view("home")
    wallet.page.click("#lock")
    wallet.view("unlock")
    assert not wallet.page.is_visible("#navigation")
    wallet.page.click("summary")
    wallet.page.click("#forgot-remove")
    wallet.error("unconfirmed")
    assert wallet.page.evaluate("document.activeElement.id") == "forgot-confirm"
    wallet.view("unlock")
    wallet.page.check("#forgot-confirm")
    wallet.page.click("#forgot-remove")
    wallet.view("welcome")
    assert wallet.page.evaluate(STORED)["keyfile"] == []


PERSISTENCE = """
if (isSecureContext) for (const name of ["persist", "persisted"]) StorageManager.prototype[name] = async () => %s;
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_browser_that_may_delete_the_wallet_is_told_of(watched: Watched, kept: bool) -> None:
    watched.context.add_init_script(PERSISTENCE % json.dumps(kept))
    wallet = WalletPage.opened(watched)
    wallet.page.click("#create-start")
    words = wallet.words()
    wallet.page.click("#words-done")
    wallet.answer_quiz(words)
    wallet.choose_password()
    for place in ("#keyfile-storage", "#settings-storage"):
        wallet.page.wait_for_selector(place, state="hidden" if kept else "visible")
        assert kept or "Safari deletes it after seven days" in wallet.tell(place)
        if place == "#keyfile-storage":
            wallet.page.click("#keyfile-done")
            wallet.navigate("Settings")
