"""What every node says of its public routes, without asking one: the same for all, whatever is switched on."""

from functools import cache

from tests.rpc.description import Asked, Description
from tests.schema.documents import public
from tests.web.wire import Response


@cache
def description(mount: str) -> Description:
    """Of what is below ``/rpc``, which pages of others may read, or below ``/p2p``."""
    described = public(None)
    described["paths"] = {path: of for path, of in described["paths"].items() if path.startswith(f"{mount}/")}
    return Description(described, cors=mount == "/rpc")


def check(asked: Asked, response: Response) -> None:
    """Fail unless an answer of a public route is one that the node announces."""
    mount = "/" + asked.path.split("/")[1]
    if mount in ("/rpc", "/p2p"):
        description(mount).check(asked, response)
