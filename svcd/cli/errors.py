"""Why a command fails: exceptions whose text is the one sentence that the user reads."""

from typing import Final


class CommandError(Exception):
    """The command cannot do what was asked; the text says why, and what would be right."""


class MissingFile(CommandError):
    """There is no file, or no folder, of the name that the command was given."""


class ErrorResponse(CommandError):
    """The node answered with an error: ``status`` is the HTTP status, the text is the node's own sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


_PASSING: Final = (408, 429)
"""The statuses of refusals that end by themselves."""


def is_final(error: CommandError) -> bool:
    """Whether a node refuses a request for good, such as one with a wrong token."""
    return isinstance(error, ErrorResponse) and 400 <= error.status < 500 and error.status not in _PASSING


class NoValidResponse(CommandError):
    """A request was sent and no valid response arrived: the node may or may not have carried it out."""
