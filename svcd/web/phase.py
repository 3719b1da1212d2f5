"""The phases that a connection goes through with every request."""

from enum import Enum


class Phase(Enum):
    """Whose turn it is on a connection."""

    IDLE = "nothing of a request has been looked at"
    HEADERS = "a request's first byte has arrived"
    BODY = "its headers have arrived"
    ANSWERING = "all of it has arrived"
    CLOSING = "nothing more is read"
