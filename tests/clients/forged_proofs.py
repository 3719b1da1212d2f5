"""What a liar between a client and its node makes of proofs."""

import json
from collections.abc import Callable

from tests.browser.between import Reply


def forge(path: str, node: Callable[[], Reply]) -> Reply | None:
    """More coins, another amount, and more work, in proofs that are the node's apart from that."""
    if "/proof" not in path:
        return None
    answer = json.loads(node().body)
    proof = answer["proof"]
    if "leaf" in proof:
        proof["leaf"]["balance"] = "9000000000000"
    elif "transaction" in proof:
        proof["chain"]["headers"][-1]["workNonce"] = "0" * 16
    else:
        proof["headers"][-1]["multiplier"] = 11_000
    return Reply.json(200, answer)
