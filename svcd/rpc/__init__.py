"""The JSON routes of the chain, payments, webhooks and the operator, and the sites that serve them."""
