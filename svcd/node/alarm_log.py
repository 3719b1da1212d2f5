"""The log of alarms, and of whether the node is in sync with the network."""

from collections.abc import Callable, Mapping
from typing import Final

from attrs import define, field
from twisted.logger import Logger

from svcd.node.chain_alarms import DEEP
from svcd.node.network_view import ALONE

_BEHIND: Final = "not in sync"
_IN_STEP: Final = "in sync with the network"
ALARM_CHECK_SECONDS: Final = 10.0
"""How often the alarms are checked."""


@define
class AlarmLog:
    """Logs the begin and end of each alarm, and whether the node is in sync with the network.

    ``behind`` gives the reason why the tip may not be the network's, ``alarms`` a sentence for each kind; "" for none.
    ``alone`` says whether there is no network to be in sync with.
    """

    behind: Callable[[], str]
    alone: Callable[[], bool]
    alarms: Callable[[], Mapping[str, str]]
    _told: str | None = field(default=None, init=False)
    """The last line about it, without the reason; None before the first."""
    _was_behind: bool = field(default=False, init=False)
    _raised: set[str] = field(factory=set, init=False)

    log = Logger()

    def check(self) -> None:
        """Log what has changed; called now and then."""
        self._log_in_step(self.behind())
        for kind, alarm in self.alarms().items():
            if alarm and kind not in self._raised:
                self._raised.add(kind)
                if kind != DEEP:  # That was logged when it happened.
                    self.log.warn("alarm {kind}: {alarm}", kind=kind, alarm=alarm)
            elif not alarm and kind in self._raised:
                self._raised.remove(kind)
                self.log.info("the alarm {kind} is over", kind=kind)

    def _log_in_step(self, why: str) -> None:
        # A new block puts every node behind for a moment, which is not logged.
        if why and not self._was_behind and self._told is not None:
            self._was_behind = True
            return
        self._was_behind = bool(why)
        told = _BEHIND if why else ALONE if self.alone() else _IN_STEP
        if told == self._told:
            return
        self._told = told
        if why:
            self.log.info("not in sync with the network: {why}", why=why)
        else:
            self.log.info("{told}", told=told)
