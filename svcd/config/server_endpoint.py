"""The type of the settings that say where the node listens; apart from the others, because it needs Twisted."""

import re
from collections.abc import Callable

from attrs import field, frozen
from OpenSSL.crypto import Error as CryptoError
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import VerifyError

from svcd.chain.value_types import BadValue, String
from svcd.endpoint_description import EndpointDescription

# Twisted has no annotation of it.
_parse_server_endpoint: Callable[[object, str], object] = serverFromString
_TCP_PORT = re.compile(r"(?:tcp6?|ssl):(?:port=)?(-?[0-9]+)(?=:|$)")


@frozen
class ServerEndpoint:
    """A Twisted server endpoint string such as `tcp:8645:interface=127.0.0.1`."""

    may_be_empty: bool = field(default=False, kw_only=True)

    def read(self, value: object) -> str:
        """Return the string, which Twisted can parse; the node listens on it at start, not here."""
        text = String().read(value)
        if not text and self.may_be_empty:
            return text
        port = _TCP_PORT.match(text)
        if port and not 0 <= int(port[1]) <= 65535:
            raise BadValue("the port must be from 0 to 65535")
        try:
            # Parsing only stores the reactor.
            for part in EndpointDescription.parse(text).for_twisted:
                _parse_server_endpoint(None, part)
        except (KeyError, IndexError) as error:
            raise BadValue(f"systemd passed no such socket ({error}); is svcd.socket running?") from error
        except OSError as error:
            raise BadValue(f"{error.filename}: {error.strerror}") from error
        except CryptoError as error:
            raise BadValue("privateKey and certKey must be a key and its certificate in PEM") from error
        except VerifyError as error:
            raise BadValue("privateKey is not the key of the certificate in certKey") from error
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a backslash at the end.
            raise BadValue(
                'must be a Twisted endpoint such as "tcp:8645:interface=127.0.0.1" or "unix:/run/svcd.sock"'
            ) from error
        return text


def owner_only(endpoint: str) -> str:
    """``endpoint`` with mode 600 where it is a Unix socket without a mode; Twisted's own default is 666."""
    described = EndpointDescription.parse(endpoint)
    return f"{endpoint}:mode=600" if described.kind == "unix" and "mode" not in described.arguments else endpoint
