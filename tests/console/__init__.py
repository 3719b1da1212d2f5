"""Tests of svcd/console."""
