"""One payment is never two transfers that can both be included, whatever a node answers (docs/wallets.md)."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from twisted.internet.task import Clock

from svcd.chain.params import DEVNET, MAINNET
from svcd.cli.errors import CommandError
from svcd.cli.secure_files import replace_file
from svcd.cli.wallet.pending import MAX_BYTES, NodeAnswer, PendingFile
from svcd.cli.wallet.preflight import check_present
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, format_uri
from tests.chains import COIN
from tests.cli.terminal import ADDRESS, KEYFILE, OTHER, PASSWORD, Terminal, site_of
from tests.cli.wallet.test_send import view_of
from tests.lying_node import BROADCAST_LIES, DAY, OTHER_LIES, Liar, Lie, LyingNode, SimulatedChain

KNOWN = {"SVC_WALLET_PASSWORD": PASSWORD}
ORDER = ("wallet", "pay", format_uri(PaymentRequest(PaymentTerms("order-17", OTHER, 10 * COIN, 12))))
SEND = ("wallet", "send", OTHER, 10)


class World:
    """A wallet with 100 coins on a simulated devnet, and a node that lies to it."""

    def __init__(self, folder: Path) -> None:
        clock = Clock()
        clock.advance(DEVNET.slot_time(20_000_000) // 1000)
        self.terminal = Terminal(folder, clock)
        self.chain = SimulatedChain(clock, {ADDRESS: 100 * COIN})
        self.liar = Liar(self.chain.answer)
        self.terminal.public.site = site_of(LyingNode(self.liar), clock)
        self.wallet = folder / "wallet.json"
        self.wallet.write_bytes(KEYFILE)
        self.wallet.chmod(0o600)

    def run(self, *words: object, typed: str = "") -> Any:
        """The result of a command with this wallet."""
        return self.terminal.invoke(*words, "--keyfile", self.wallet, typed=typed, env=KNOWN)

    def paid(self, *words: object) -> dict[str, str]:
        """The answer of a payment that succeeds."""
        result = self.run(*words, "--yes", "--json")
        assert result.exit_code == 0, result.output
        value: dict[str, str] = json.loads(result.stdout)
        return value

    def failed(self, *words: object) -> str:
        """The sentence of a payment that fails."""
        result = self.run(*words, "--yes")
        assert result.exit_code == 1, result.output
        return str(result.stderr.splitlines()[-1].removeprefix("Error: "))

    def nonces(self) -> set[int]:
        """The nonces of all transfers that were broadcast."""
        return {int(transaction["nonce"]) for transaction in self.liar.seen.values()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Single lies


@pytest.mark.parametrize("words", [ORDER, SEND], ids=["pay", "send"])
@pytest.mark.parametrize("lie", BROADCAST_LIES)
def test_a_node_that_lies_about_a_broadcast_is_not_paid_for_it(world: World, words: tuple[Any, ...], lie: Lie) -> None:
    """The proof of the audit: 20 coins for 10, by a node that relays the transfer and answers 400."""
    world.liar.lies = {lie, Lie.UNKNOWN}
    first = world.run(*words, "--yes")
    assert (first.exit_code == 0) == (lie is Lie.DROP_AND_ACCEPT)
    world.chain.mine()
    world.liar.lies = {Lie.UNKNOWN}
    world.run(*words, "--yes")
    world.liar.relay_late()
    world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, "order-17" if words is ORDER else None) == 1
    assert len(world.liar.seen) == 1, "the same bytes were sent again"


@pytest.mark.parametrize("status_lie", [Lie.NONCE_AHEAD, Lie.NONCE_BEHIND, Lie.NONE_WAITING, Lie.SLOT_BEHIND])
def test_a_node_cannot_make_the_wallet_forget_a_transfer(world: World, status_lie: Lie) -> None:
    world.liar.lies = {Lie.RELAY_AND_REFUSE}
    world.failed(*ORDER)
    world.liar.lies = {status_lie, Lie.UNKNOWN}
    world.run(*ORDER, "--yes")
    world.run("wallet", "send", OTHER, 3, "--yes")
    world.run(*ORDER, "--yes")
    world.liar.relay_late()
    world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, "order-17") == 1
    assert world.chain.can_be_paid_twice() == []


def test_a_symbolic_link_to_the_keyfile_shares_its_transfers(world: World) -> None:
    world.paid(*SEND)
    world.chain.mine()
    original, link = world.wallet, world.wallet.with_name("link.json")
    link.symlink_to(original.name)
    world.wallet = link
    assert world.paid(*SEND)["state"] == "in a block"
    assert world.chain.paid(OTHER, 10 * COIN, None) == 1
    assert not link.with_name("link.json.outbox").exists()


@pytest.mark.parametrize("how", ["renamed", "copied", "hard link"])
def test_another_name_of_the_keyfile_in_the_same_folder_pays_nothing_twice(world: World, how: str) -> None:
    world.liar.lies = {Lie.RELAY_AND_REFUSE}
    world.failed(*SEND)
    world.liar.lies = set()
    original, other = world.wallet, world.wallet.with_name("other.json")
    if how == "renamed":
        original.rename(other)
    elif how == "copied":
        shutil.copy2(original, other)
    else:
        other.hardlink_to(original)
    world.wallet = other
    assert world.paid(*SEND)["nonce"] == "0"
    world.chain.mine()
    assert world.paid(*SEND)["state"] == "in a block"
    assert len(world.liar.seen) == 1, "the same bytes were sent again"
    assert world.chain.paid(OTHER, 10 * COIN, None) == 1


@pytest.mark.parametrize(
    "content", [b"From me\xff", b"{}", b'{"format":"svc-outbox-v2","transfers":[]}', b"["], ids=str
)
def test_files_of_others_in_the_folder_hold_nothing_up(world: World, content: bytes) -> None:
    world.wallet.with_name("mail.outbox").write_bytes(content)
    world.wallet.with_name("folder.outbox").mkdir()
    large = world.wallet.with_name("large.outbox")
    large.touch()
    os.truncate(large, MAX_BYTES + 1)
    world.wallet.with_name("none.outbox").symlink_to("nothing")
    assert world.paid(*SEND)["nonce"] == "0"
    assert world.wallet.with_name("mail.outbox").read_bytes() == content


def test_a_link_to_a_file_that_is_absent_is_not_an_empty_file(world: World) -> None:
    """The stored transfers may be on a disk that is not mounted."""
    world.paid(*SEND)
    world.chain.mine()
    outbox = world.wallet.with_name(f"{world.wallet.name}.outbox")
    elsewhere = outbox.rename(world.wallet.with_name("elsewhere"))
    outbox.symlink_to(elsewhere)
    world.paid(*SEND)
    assert outbox.is_symlink(), "the link is kept, and its target is written"
    elsewhere.unlink()
    assert world.failed(*SEND) == f"{outbox} cannot be read: no such file or directory"
    assert world.chain.paid(OTHER, 10 * COIN, None) == 1
    assert len(world.liar.seen) == 1


def test_a_newest_block_in_the_future_is_not_believed(world: World) -> None:
    world.chain.mine()
    world.liar.lies = {Lie.SLOT_AHEAD}
    assert world.failed(*ORDER) == (
        "the node's newest block is 172800 s ahead of this computer's clock, more than the 300 s that are accepted:"
        " correct the clock, or use another node"
    )
    assert world.liar.seen == {}


def test_an_old_newest_block_is_believed_only_where_blocks_are_made_on_demand() -> None:
    now = MAINNET.slot_time(100_000)
    check_present(now, view_of(params=MAINNET, tip_time=now - 3 * 3_600_000))
    with pytest.raises(Exception, match=r"newest block is 181 minutes old, more than the 180 that are accepted"):
        check_present(now, view_of(params=MAINNET, tip_time=now - 181 * 60_000))
    check_present(now, view_of(params=DEVNET, tip_time=now - 14 * DAY))


# Repeating a command


def test_a_refused_transfer_does_not_hold_other_payments_up(world: World) -> None:
    world.liar.lies = {Lie.DROP_AND_REFUSE}
    assert "is kept, because the node may have relayed it anyway" in world.failed(*ORDER)
    world.liar.lies = set()
    told = world.run("wallet", "send", OTHER, 3, "--yes")
    assert "Warning: the node refused the transfer" in told.stderr
    assert world.nonces() == {0}, "only one of the two can be paid"
    history = world.run("wallet", "history", "--json")
    assert history.exit_code == 1, "the simulated chain has no history"


CHANGED = ("wallet", "send", OTHER, 10, "--reference", "order-17-b")
"""What a person sends whom a liar has told that the reference of the order is not allowed."""


def test_a_refused_transfer_and_the_next_payment_are_not_both_paid(world: World) -> None:
    """The node sends the transfer on, answers 400, and offers the next nonce for other terms."""
    world.liar.lies = {Lie.RELAY_AND_REFUSE}
    assert "another payment gets its nonce, so only one of them can be paid" in world.failed(*ORDER)
    world.liar.lies = {Lie.UNKNOWN}
    assert json.loads(world.terminal.ok("balance", ADDRESS, "--json").out)["pendingNonce"] == "1"
    world.run(*CHANGED, "--yes")
    world.chain.mine()
    assert world.nonces() == {0}
    assert world.chain.paid(OTHER, 10 * COIN, "order-17") + world.chain.paid(OTHER, 10 * COIN, "order-17-b") == 1


@pytest.mark.parametrize("hidden", [True, False])
def test_a_used_nonce_of_a_refused_transfer_is_told(world: World, hidden: bool) -> None:
    world.liar.lies = {Lie.RELAY_AND_REFUSE}
    world.failed(*ORDER)
    world.chain.mine()
    world.liar.lies = {Lie.UNKNOWN} if hidden else set()
    (txid,) = world.liar.seen
    told = (
        f"the node says that another transfer has used the nonce 0 of {txid}, which no node has accepted: if that is"
        " not so, that transfer is paid besides this one"
        if hidden
        else f"the transfer {txid} is in a block, although the node refused it: it is paid"
    )
    assert world.failed(*CHANGED) == f"{told}; omit --yes to decide yourself"
    assert f"Warning: {told}." in world.run(*CHANGED, typed="n\n").stderr
    assert world.nonces() == {0}
    assert world.run(*CHANGED, "--nonce", 1, "--yes").exit_code == 0, "the user has decided"


def test_a_used_nonce_of_a_transfer_without_an_answer_is_told(world: World) -> None:
    world.liar.lies = {Lie.RELAY_AND_HANG}
    world.failed(*ORDER)
    world.liar.lies = {Lie.NONCE_AHEAD, Lie.UNKNOWN}
    assert "says that another transfer has used the nonce 0" in world.failed(*CHANGED)
    world.liar.lies = set()
    world.chain.mine()
    assert world.paid(*CHANGED)["nonce"] == "1", "the first one is paid, as the user wanted"


def test_a_second_payment_must_be_asked_for(world: World) -> None:
    first = world.paid(*SEND)
    assert world.paid(*SEND) == {**first, "state": "known"}
    second = world.paid(*SEND, "--again")
    assert (first["nonce"], second["nonce"]) == ("0", "1")
    world.chain.mine()
    assert world.paid(*SEND) == {**second, "state": "in a block"}
    assert world.chain.paid(OTHER, 10 * COIN, None) == 2


def test_a_second_payment_waits_for_an_answer_to_the_first(world: World) -> None:
    world.liar.lies = {Lie.RELAY_AND_HANG}
    world.failed(*SEND)
    assert "repeat the command without --again first" in world.failed(*SEND, "--again")
    world.liar.lies = {Lie.NONE_WAITING}
    assert world.paid(*SEND)["state"] == "known"
    assert "repeat the command without --again first" in world.failed(*SEND, "--again"), "the node has lost it"
    world.liar.lies = set()
    world.paid(*SEND, "--again")
    world.liar.lies = {Lie.RELAY_AND_FAIL}
    assert "repeat the command without --again to send the same" in world.failed(*SEND, "--again")
    assert world.nonces() == {0, 1, 2}


def test_another_fee_gets_the_same_nonce(world: World) -> None:
    world.paid(*ORDER)
    told = world.run(*ORDER, "--fee", "0.001", typed="n\n")
    assert "The new transfer has the same nonce, so only one of the two can be paid." in told.stderr
    assert len(world.liar.seen) == 1
    replaced = world.paid(*ORDER, "--fee", "0.001")
    assert (replaced["nonce"], replaced["fee"]) == ("0", "100000")
    world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, "order-17") == 1


def test_another_nonce_is_a_second_payment(world: World) -> None:
    first = world.paid(*SEND, "--nonce", 0)
    sentence = world.failed(*SEND, "--nonce", 1)
    assert sentence == (
        f"the same terms were signed with the nonce 0 already ({first['txid']}): omit --nonce to send that transfer"
        " again, or add --again to pay a second time"
    )
    assert world.paid(*SEND, "--nonce", 1, "--again")["nonce"] == "1"
    assert world.paid(*SEND, "--nonce", 0) == {**first, "state": "known"}


def test_a_transfer_that_is_too_old_is_signed_again_with_its_nonce(world: World) -> None:
    world.liar.lies = {Lie.DROP_AND_ACCEPT}
    first = world.paid(*ORDER)
    world.liar.lies = set()
    world.terminal.clock.advance(DAY // 1000 + 1)
    world.chain.mine()
    second = world.paid(*ORDER)
    assert second["txid"] != first["txid"]
    assert world.nonces() == {0}


def test_an_unpaid_order_whose_nonce_is_used_is_signed_anew_only_if_the_user_says_so(world: World) -> None:
    world.liar.lies = {Lie.DROP_AND_REFUSE}
    world.failed(*ORDER)
    world.liar.lies = set()
    world.run("wallet", "send", OTHER, 3, "--yes")
    world.chain.mine()
    assert "nonce 0 is already used" in world.failed(*ORDER)
    world.terminal.clock.advance(DAY // 1000 + 1)
    world.chain.mine()
    assert "another transfer has used nonce 0" in world.failed(*ORDER)
    assert world.paid(*ORDER, "--again")["nonce"] == "1"


def test_a_payment_that_another_one_has_replaced_does_not_take_its_nonce_back(world: World) -> None:
    first = world.paid(*ORDER)
    other = world.paid("wallet", "send", ADDRESS, 1, "--nonce", 0, "--fee", "0.001")
    sentence = world.failed(*ORDER, "--fee", "0.01")
    assert f"nonce 0 of the transfer {first['txid']}" in sentence
    assert f"was given to the transfer {other['txid']} since, which this one would replace" in sentence
    world.chain.mine()
    assert world.paid(*ORDER, "--again")["nonce"] == "1"


def test_the_same_sum_without_a_reference_can_be_paid_every_week(world: World) -> None:
    for week in range(3):
        assert world.paid(*SEND)["nonce"] == str(week)
        world.chain.mine()
        world.terminal.clock.advance(7 * DAY // 1000)
        world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, None) == 3
    world.paid(*ORDER)
    world.chain.mine()
    world.terminal.clock.advance(7 * DAY // 1000)
    world.chain.mine()
    assert world.paid(*ORDER)["state"] == "in a block", "an order is paid once, for ever"


# Kills


class Killed(BaseException):
    """The process has ended here."""


PLACES = ("before the file is written", "after the file is written", "after it is sent")


@pytest.mark.parametrize("place", PLACES)
def test_a_wallet_that_is_killed_pays_once(world: World, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _pay_and_die(world, place, monkeypatch)
    kept = PendingFile(world.wallet, DEVNET).load()
    assert len(kept) == (0 if place.startswith("before") else 1)
    assert len(world.liar.seen) == (1 if place.startswith("after it is sent") else 0)
    assert all(each.answer is NodeAnswer.NONE for each in kept)
    world.paid(*ORDER)
    world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, "order-17") == 1
    assert world.nonces() == {0}


def _pay_and_die(world: World, place: str, patched: pytest.MonkeyPatch) -> None:
    """Pay the order with a process that is killed at ``place``."""

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    saved = PendingFile.save

    def save(self: PendingFile, transfer: Any, answer: NodeAnswer, *, now: int) -> None:
        if place == "before the file is written" or answer is not NodeAnswer.NONE:
            raise Killed
        saved(self, transfer, answer, now=now)

    with patched.context() as context:
        if place == "after the file is written":
            context.setattr("svcd.cli.http_client.NodeClient.post", die)
        context.setattr(PendingFile, "save", save)
        try:
            world.run(*ORDER, "--yes")
        except Killed:
            return


def test_the_file_is_on_the_disk_before_the_transfer_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # svc remembers that it has opened this keyfile, and writes nothing about it any more.
    assert world.run("wallet", "address", "--verify").exit_code == 0
    done: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        done.append("fsync")
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        done.append("replace")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)

    class Watched(LyingNode):
        def render(self, request: Any) -> Any:
            if request.method == b"POST":
                done.append("sent")
            return super().render(request)

    world.terminal.public.site = site_of(Watched(world.liar), world.terminal.clock)
    world.paid(*ORDER)
    assert done[: done.index("sent") + 1] == ["fsync", "fsync", "replace", "fsync", "sent"]


@pytest.mark.parametrize("lie", [None, Lie.RELAY_AND_REFUSE])
def test_a_disk_that_is_full_after_the_transfer_is_sent(
    world: World, lie: Lie | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that sees only "no space left on device" would take the transfer for unsent, and pay elsewhere."""
    world.liar.lies = {lie} if lie else set()
    with monkeypatch.context() as patched:
        patched.setattr("svcd.cli.wallet.pending.replace_file", _disk_with_room_for_one())
        result = world.run(*ORDER, "--yes", "--json")
    (txid,) = world.liar.seen
    assert f"no space left on device. The transfer {txid} is stored there already" in result.stderr
    if lie is None:
        assert (result.exit_code, json.loads(result.stdout)["txid"]) == (0, txid)
    else:
        assert result.exit_code == 1
        assert "is kept, because the node may have relayed it anyway" in result.stderr.splitlines()[-1]
    world.liar.lies = set()
    assert world.paid(*ORDER)["txid"] == txid
    world.chain.mine()
    assert world.chain.paid(OTHER, 10 * COIN, "order-17") == 1


def _disk_with_room_for_one() -> Callable[[Path, bytes], None]:
    written: list[Path] = []

    def replace(path: Path, data: bytes) -> None:
        if written:
            raise CommandError(f"{path} cannot be written: no space left on device")
        written.append(path)
        replace_file(path, data)

    return replace


# The law


class PayingOnce(RuleBasedStateMachine):
    """Commands, lies, restarts, blocks, reorganisations and days, in any order.

    Two intents: an order, and a transfer without a reference. The user says of neither that it is to be paid twice.
    """

    folder: Path
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        PayingOnce.runs += 1
        folder = self.folder / str(PayingOnce.runs)
        folder.mkdir()
        self.world = World(folder)
        self.sent_at: int | None = None

    @initialize()
    def begin(self) -> None:
        self.world.chain.mine()

    @rule(
        broadcast=st.none() | st.sampled_from(BROADCAST_LIES), others=st.sets(st.sampled_from(OTHER_LIES), max_size=3)
    )
    def lie(self, broadcast: Lie | None, others: set[Lie]) -> None:
        self.world.liar.lies = others | ({broadcast} if broadcast else set())

    @rule(fee=st.sampled_from([(), ("--fee", "0.0001"), ("--fee", "0.0002"), ("--fee", "0.001")]))
    def pay(self, fee: tuple[str, ...]) -> None:
        self.world.run(*ORDER, *fee, "--yes")

    @rule(copied=st.booleans(), name=st.sampled_from(["one.json", "two.json"]))
    def another_name(self, copied: bool, name: str) -> None:
        """Go on with a copy of the keyfile, or rename it; what it has signed stays beside the former name."""
        former, self.world.wallet = self.world.wallet, self.world.wallet.with_name(name)
        if former != self.world.wallet:
            shutil.copy2(former, self.world.wallet)
            if not copied:
                former.unlink()

    @rule(nonce=st.integers(0, 3))
    def pay_with_nonce(self, nonce: int) -> None:
        self.world.run(*ORDER, "--nonce", nonce, "--yes")

    @rule()
    def send(self) -> None:
        if self.sent_at is None:
            self.sent_at = self.world.chain.now()
        if self.world.chain.now() - self.sent_at < DAY:
            self.world.run(*SEND, "--yes")

    @rule(amount=st.integers(1, 3), nonce=st.none() | st.integers(0, 2))
    def pay_something_else(self, amount: int, nonce: int | None) -> None:
        at = () if nonce is None else ("--nonce", nonce, "--fee", "0.01")
        self.world.run("wallet", "send", OTHER, amount, *at, "--yes")

    @rule(place=st.sampled_from(PLACES))
    def pay_and_die(self, place: str) -> None:
        with pytest.MonkeyPatch.context() as patched:
            _pay_and_die(self.world, place, patched)

    @rule()
    def relay_late(self) -> None:
        self.world.liar.relay_late()

    @rule(chosen=st.integers(0, 7))
    def mine(self, chosen: int) -> None:
        self.world.chain.mine(lambda transfer: bool(chosen >> transfer.nonce % 3 & 1))

    @rule(depth=st.integers(1, 4))
    def reorganise(self, depth: int) -> None:
        self.world.chain.undo(depth)
        self.world.chain.mine()

    @rule(hours=st.sampled_from([1, 12, 24, 26, 24 * 7]))
    def wait(self, hours: int) -> None:
        self.world.terminal.clock.advance(3600 * hours)

    @invariant()
    def paid_once(self) -> None:
        chain = self.world.chain
        assert chain.paid(OTHER, 10 * COIN, "order-17") <= 1
        assert chain.paid(OTHER, 10 * COIN, None) <= 1
        ours = [pair for pair in chain.can_be_paid_twice() if pair[0].amount == 10 * COIN]
        assert ours == []


@pytest.fixture
def machine(tmp_path: Path) -> type[PayingOnce]:
    PayingOnce.folder, PayingOnce.runs = tmp_path, 0
    return PayingOnce


@pytest.mark.slow
@pytest.mark.story
@pytest.mark.deadline(600)
def test_law_one_payment_is_one_transfer(machine: type[PayingOnce]) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=30))
