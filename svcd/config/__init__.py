"""The node's configuration: its schema, the types of values, and how it is loaded and validated."""
