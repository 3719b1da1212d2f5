"""Sells tickets of pretix for coins of a svcd network."""

__version__ = "0.1.0"
