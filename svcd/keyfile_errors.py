"""Why a keyfile cannot be made or opened, for those who report it without the libraries that open keyfiles."""


class KeyfileError(Exception):
    """A keyfile cannot be sealed or opened; the text is one sentence that says why, without the password."""


class DamagedKeyfile(KeyfileError):
    """The file is not a keyfile of this format, or its content has been changed."""


class UnknownNetwork(KeyfileError):
    """The keyfile is of a network that is not built in, and whose rules are not at hand."""


class WrongPassword(KeyfileError):
    """The password does not decrypt the keyfile."""
