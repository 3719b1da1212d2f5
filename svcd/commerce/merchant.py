"""The merchants of a node, of whom none sees the watches of another (docs/webhooks.md "Several merchants")."""

from attrs import field, frozen

from svcd.commerce.signing import SigningKeys


@frozen(kw_only=True)
class Merchant:
    """A merchant with the secrets that it shares with the node."""

    name: str
    """Stored with each of its watches."""
    token: str = field(repr=False)
    """Authorises its requests."""
    keys: SigningKeys
    recipients: frozenset[str] = frozenset()
    """The addresses whose payments it may watch; empty for all."""

    def may_watch(self, recipient: str) -> bool:
        """Whether it may watch payments to an address."""
        return not self.recipients or recipient in self.recipients
