"""The public chain routes, their OpenAPI document, and the operator's routes."""
