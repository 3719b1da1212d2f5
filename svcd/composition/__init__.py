"""The composition of a node from its packages; :mod:`svcd.composition.lifecycle` has the order of start and stop."""
