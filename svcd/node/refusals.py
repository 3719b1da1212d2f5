"""How often transfers are refused, and why."""

from collections import Counter

from twisted.python.failure import Failure

from svcd.chain.errors import Refusal, RuleViolation


class Refusals(Counter[Refusal]):
    """Counts by the rule that was broken."""

    def note(self, failure: Failure) -> Failure:
        """Count ``failure`` if it is a refusal, and pass it on."""
        if isinstance(failure.value, RuleViolation):
            self[failure.value.code] += 1
        return failure
