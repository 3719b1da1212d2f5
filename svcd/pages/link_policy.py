"""Which payment links pages show as links of this site (docs/pages.md "Forged links").

Anybody can write a link to a checkout, with a recipient, a label and a way back of their choice.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import frozen

from svcd.web.responses import HttpError

UNLISTED: Final = (
    "this site shows payment links of its own shops only: this link has another recipient or returnUrl; ask the shop"
)


@frozen
class LinkPolicy:
    """The recipients and hosts of the links that the shops of this site make; by default all are theirs."""

    recipients: frozenset[str] = frozenset()
    """Addresses; empty for any."""
    return_hosts: frozenset[str] = frozenset()
    """Hosts to which a link may lead back, in lower case, with the port if it is not 443; empty for any."""
    only: bool = False
    """Whether other links are refused rather than shown without label and way back."""
    shop_names: Mapping[str, str] = MappingProxyType({})
    """The name of the shop of each recipient."""

    def lists(self, recipient: str, return_host: str | None) -> bool:
        """Whether a link is listed; HttpError 403 if it is not, and other links are refused."""
        known = not self.recipients or recipient in self.recipients
        if known and (return_host is None or not self.return_hosts or return_host in self.return_hosts):
            return True
        if self.only:
            raise HttpError(403, UNLISTED)
        return False

    @property
    def script_data(self) -> dict[str, object]:
        """What ``link-policy.mjs`` reads, and the names that the wallet shows."""
        lists = {"recipients": sorted(self.recipients), "returnHosts": sorted(self.return_hosts)}
        return {**lists, "only": self.only, "shopNames": dict(self.shop_names)}


LinkPolicySource = Callable[[], LinkPolicy]
"""Returns the policy in force, which can change with the merchants."""
