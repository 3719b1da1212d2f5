"""How the rooms are put together: with :mod:`svcd.tap` the only place that sees every one of them."""
