"""The composition of a node from its rooms; :mod:`svcd.composition.lifecycle` has the order of start and stop."""
