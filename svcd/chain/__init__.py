"""The rules of the chain: functions of values. No clock, no reactor, no database, no randomness, no logging."""
