"""The image of `make image`, run by podman as docs/container.md says."""
