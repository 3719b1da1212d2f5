"""What can go wrong; the text of every error is one sentence for a person."""


class SvcPayError(Exception):
    """Every error of this package."""


class InvalidInput(SvcPayError, ValueError):
    """A value that this program was given does not have the required form."""


class NodeUnreachable(SvcPayError):
    """No answer came. A request that is not repeatable may or may not have been carried out."""


class InvalidAnswer(SvcPayError):
    """The answer is not one of a svcd node."""


class ApiError(SvcPayError):
    """The node refused the request; the text is the node's sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        """The HTTP status."""
        self.retry_after = retry_after
        """Seconds after which the node asks to be called again; None if it does not say."""


class BadRequest(ApiError):
    """400: the request is not valid."""


class Unauthorized(ApiError):
    """401: the management token is missing or wrong."""


class NotFound(ApiError):
    """404: there is no such thing, or not on the chain at present."""


class Conflict(ApiError):
    """409: it cannot be done in the present state."""


class TooManyRequests(ApiError):
    """429: a limit of the node has been reached."""


class Unavailable(ApiError):
    """5xx: the node, or a proxy in front of it, cannot answer at present."""


class ImpossibleAmount(SvcPayError):
    """After a transfer of this amount its sender or its recipient would have less than the account minimum."""

    def __init__(self, sentence: str, possible: int | None) -> None:
        super().__init__(sentence)
        self.possible = possible
        """The nearest amount that would do, in base units; None if none would."""


class PayoutRefused(SvcPayError):
    """A payout is not made or changed as asked: other terms under its id, or a new nonce that could pay it twice."""


class JournalError(SvcPayError):
    """The journal of payouts cannot be read or written, or is damaged; nothing was sent."""


class StoreError(SvcPayError):
    """The store of open orders cannot be read or written, or is damaged, or is read by two programs at once."""


class WaitTimeout(SvcPayError):
    """The awaited state did not come in time."""


class InvalidSignature(SvcPayError):
    """A callback is not from the node, or is too old; answer it with 401."""


class InvalidProof(SvcPayError):
    """A proof does not prove the payment."""


class RateRefused(SvcPayError):
    """There is no rate that may be used now: do not sell until there is one."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def api_error(status: int, sentence: str, retry_after: int | None) -> ApiError:
    """The error for an HTTP status."""
    return _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)(status, sentence, retry_after)
