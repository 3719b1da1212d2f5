"""The webhooks' database brought to life, and put to rest again."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.commerce.event import Origin
from svcd.commerce.follower import Eyes, Follower
from svcd.commerce.register import Register
from svcd.commerce.subscriptions import Subscriptions
from svcd.node.guard import Disk, Guard, GuardedWorker
from svcd.node.living import LivingChain
from svcd.node.threads import Worker
from svcd.store.chain_store import ChainReader
from svcd.store.database import WEBHOOKS, DatabaseError, open_reader, open_writer, telling_damage, telling_disk_trouble
from svcd.store.mark import OpenMark
from svcd.store.webhook_events import EventStore
from svcd.store.webhook_store import WebhookStore

FILE: Final = "webhooks.sqlite"
_LOG: Final = Logger()


@frozen(kw_only=True)
class Terms:
    """How watches are kept on this node."""

    every_depth: bool
    """Whether each further block on top of an unconfirmed payment is told."""
    new_id: Callable[[], str]
    """The id of a new watch, at random."""
    now: Callable[[], int]
    """The time, in Unix milliseconds."""


@frozen
class Desk:
    """The open webhooks; :meth:`close` them before the chain."""

    subscriptions: Subscriptions
    worker: Worker
    """Everything about them runs there, in order."""
    disk: Disk
    """The disk that they are on."""
    _close: Callable[[], None]

    async def close(self) -> None:
        """Close the files, after all that has begun."""
        await self.worker.run(self._close)


async def open_desk(
    params: NetworkParams, folder: Path, *, chain: Path, worker: Worker, guard: Guard, terms: Terms
) -> Desk:
    """Open the database of webhooks in ``folder``, or make one, beside the open chain at ``chain``.

    ``worker`` has one thread; ``guard`` is that of the chain. Raises DatabaseError.
    """
    mark = OpenMark(folder / FILE)
    if mark.misses_log:
        raise DatabaseError(
            f"{mark.log} is missing although the last run did not end by itself: what merchants were promised last is "
            f"lost with it. Put it back, or move {mark.database} away and register the webhooks still open anew"
        )
    connection = await worker.run(open_writer, mark.database, WEBHOOKS)
    store = WebhookStore(connection)
    with telling_disk_trouble(mark.database), mark.opening(connection):
        with telling_damage(mark.database, WEBHOOKS):
            await worker.run(_set_apart, store, terms.now())
        reading = open_reader(chain, guard.is_damage)
    origin = Origin(network_id=params.network_id, chain_id=params.chain_id, genesis_hash=params.genesis_hash)
    register = Register(store, EventStore(connection), origin)
    follower = Follower(register, Eyes(params, ChainReader(reading)), terms.every_depth)

    def close() -> None:
        with suppress(OSError):
            mark.take_away()
        reading.close()
        connection.close()

    own = guard.of(WEBHOOKS)
    guarded = GuardedWorker(worker, own, tells_trouble=False)
    return Desk(Subscriptions(follower, terms.new_id), guarded, Disk(own, worker, store.probe), close)


def _set_apart(store: WebhookStore, now: int) -> None:
    """Let the watches of a backup tell nothing under an id under which receivers may have heard something else.

    The node of which it was made went on telling for a while, and nobody knows how much. No watch is reorganised once
    a second for as long as there is Unix time, so that an epoch which is the time comes after all of them.
    """
    if not store.is_copy():
        return
    with store.commit():
        store.begin_epochs(now // 1000)
    _LOG.info("the webhooks are those of a backup: their watches go on, and tell again what receivers may know")


@frozen
class Files:
    """All that a node keeps open."""

    living: LivingChain
    desk: Desk | None

    @property
    def trouble(self) -> str:
        """Why something cannot be written, as far as it has been tried; "" if all can."""
        # Mostly all are on one disk, of which the chain's sentence says it all.
        return self.living.trouble or ("" if self.desk is None else self.desk.disk.trouble)

    async def try_disks(self) -> None:
        """See whether a disk that has refused something takes anything by now; to be called now and then."""
        for disk in (*self.living.disks, *([] if self.desk is None else [self.desk.disk])):
            await disk.try_again()

    async def close(self) -> None:
        """Close what was opened last first."""
        try:
            if self.desk is not None:
                await self.desk.close()
        finally:
            await self.living.close()


async def open_files(chain: Awaitable[LivingChain], desk: Callable[[], Awaitable[Desk]] | None) -> Files:
    """Open the chain and then, where one is wanted, the desk; if that fails, nothing stays open."""
    living = await chain
    try:
        return Files(living, None if desk is None else await desk())
    except BaseException:
        await living.close()
        raise
