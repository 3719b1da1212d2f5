"""Why a command fails: exceptions whose text is the one sentence that the user reads."""


class Failed(Exception):
    """A command cannot do what it was asked; the text says why and what would be right."""


class Refused(Failed):
    """The node answered, with an error: ``status`` is the HTTP status, the text is the node's own sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Unanswered(Failed):
    """A request went out and no usable answer came back: the node may have done what it was asked, or not."""


class DamagedKeyfile(Failed):
    """A file is no keyfile of ours, or not the one that was written."""


class WrongPassword(Failed):
    """The password does not open the keyfile."""
