"""A small toolkit over twisted.web and Klein: limits, deadlines, routing, CORS. It knows nothing of the chain."""
