"""The HTML pages: explorer, checkout and browser wallet (docs/pages.md)."""
