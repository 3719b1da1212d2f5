"""Opens a site on an endpoint, and closes it without breaking off what was asked."""

from typing import Any

from attrs import frozen
from twisted.internet.defer import maybeDeferred

from svcd.web.site import Site


@frozen
class Listening:
    """A site on its open port."""

    port: Any
    """An IListeningPort."""
    site: Site

    async def stop(self, seconds: float) -> None:
        """Close the port, then wait up to ``seconds`` for the requests that have begun."""
        await maybeDeferred(self.port.stopListening)
        await self.site.drain(seconds)


async def listen(endpoint: Any, site: Site) -> Listening:
    """Open ``site`` on ``endpoint`` (an IStreamServerEndpoint); raises CannotListenError if the port is taken."""
    return Listening(await endpoint.listen(site), site)
