"""Keys and signing on the command line."""
