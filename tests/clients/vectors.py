"""The vectors in tests/vectors, and the payment proof in them with its changes."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

VECTORS = Path(__file__).parents[1] / "vectors"


def vectors(name: str) -> Any:
    """The content of a file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


@frozen
class ProofCase:
    """An order, a trusted tip and the answer of a node, as JSON has them."""

    what: str
    order: dict[str, Any]
    tip: str
    answer: dict[str, Any]


def changed_proofs() -> Iterator[ProofCase]:
    """The proof of the vectors, with each change that a checker must refuse."""
    content = vectors("payment_proof")
    for change in content["refused"]:
        case = copy.deepcopy({"order": content["order"], "tip": content["tip"], "proof": content["answer"]["proof"]})
        path = [change["of"], *change["at"]]
        inner: Any = case
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = change["to"]
        yield ProofCase(change["what"], case["order"], case["tip"], {**content["answer"], "proof": case["proof"]})
