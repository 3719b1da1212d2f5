"""Every limit of the node as data, each with the attack that it stops (docs/operations.md "Operator interface")."""

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from svcd.rpc.operator import BEARER
from svcd.web.answers import Answer
from svcd.web.routing import Route, object_schema

UNITS: Final = ("blocks", "bytes", "clients", "connections", "requests/s", "seconds", "slots", "things")


@frozen
class Limit:
    """One limit in force."""

    name: str
    value: float
    """0 = there is none."""
    unit: str
    stops: str
    """The attack, as docs/threats.md names it."""
    setting: str | None = None
    """The key of the configuration that changes it, such as "limits.connections"; None where the code has it."""

    def record(self) -> dict[str, object]:
        """The JSON object."""
        value = int(self.value) if self.value == int(self.value) else self.value
        return {
            "name": self.name,
            "value": value,
            "unit": self.unit,
            "setting": self.setting,
            "stops": self.stops,
        }


_LIMIT: Final = object_schema(
    {
        "name": {"type": "string"},
        "value": {"type": "number", "minimum": 0},
        "unit": {"enum": list(UNITS)},
        "setting": {"type": ["string", "null"]},
        "stops": {"type": "string"},
    }
)


class LimitsRoutes:
    """Shows the table."""

    def __init__(self, limits: Sequence[Limit], *, token: str | None) -> None:
        self.token = token
        self._records = [limit.record() for limit in limits]

    @Route(
        "GET",
        "/operator/limits",
        "Every limit in force, with the attack that it stops",
        bucket="operator",
        guards=(BEARER,),
        answers={200: object_schema({"limits": {"type": "array", "items": _LIMIT}})},
    )
    def limits(self) -> Answer:
        """Answer GET /operator/limits."""
        return {"limits": self._records}
