"""What two collections have in common, in the time that the smaller one takes."""

from collections.abc import Collection, Mapping, Set


def common(held: Mapping[bytes, object], keys: Collection[bytes]) -> list[bytes]:
    """Those of ``keys`` that ``held`` has, each once: a change of hundreds of full blocks names 400,000 transfers.

    In an order that is the same in every process: that of ``held`` or of ``keys``, or of the keys themselves.
    """
    if not held:
        return []
    if isinstance(keys, Set | Mapping) and len(keys) > len(held):
        return [key for key in held if key in keys]
    if isinstance(keys, Set):
        return sorted([key for key in keys if key in held])
    return [key for key in dict.fromkeys(keys) if key in held]
