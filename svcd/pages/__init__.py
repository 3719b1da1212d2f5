"""The pages that people look at: explorer, checkout and the wallet's page (docs/pages.md)."""
