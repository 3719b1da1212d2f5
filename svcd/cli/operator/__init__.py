"""The commands of an operator: a running node over its socket, and the databases of a stopped one."""
