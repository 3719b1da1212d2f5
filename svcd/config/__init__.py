"""The node's configuration: what may be set, what a value must look like, and how it is read."""
