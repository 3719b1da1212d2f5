"""Reads the secrets that the configuration names by file."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from svcd.config.layers import KeyPath, Settings
from svcd.config.schema import Config

_MAX_BYTES = 4096


def with_secrets(config: Config, settings: Settings, environment: Mapping[str, str]) -> Config:
    """Return the configuration with the webhooks' secrets read from their files, if webhooks are enabled.

    Raises:
        ConfigError: a secret is given twice, or its file is missing, not text, too long or readable by others.
    """
    webhooks = config.commerce.webhooks
    if not webhooks.enabled:
        return config
    credentials = Path(environment["CREDENTIALS_DIRECTORY"]) if "CREDENTIALS_DIRECTORY" in environment else None

    def secret(key: str, given: str, file: str) -> str:
        at = ("commerce", "webhooks", f"{key}File")
        if given and file:
            raise settings.problem(at, f"{key} is set too; keep one of the two")
        return _secret(config.data_dir / file, settings, at, credentials) if file else given

    read = attrs.evolve(
        webhooks,
        manage_token=secret("manageToken", webhooks.manage_token, webhooks.manage_token_file),
        signing_secret=secret("signingSecret", webhooks.signing_secret, webhooks.signing_secret_file),
        previous_signing_secret=secret(
            "previousSigningSecret", webhooks.previous_signing_secret, webhooks.previous_signing_secret_file
        ),
    )
    return attrs.evolve(config, commerce=attrs.evolve(config.commerce, webhooks=read))


def _secret(path: Path, settings: Settings, at: KeyPath, credentials: Path | None) -> str:
    try:
        # systemd shows a credential as 0440 where it grants access by an ACL (its issue 29435); the folder is private.
        guarded = credentials is not None and path.resolve().parent == credentials.resolve()
        mode = path.stat().st_mode & 0o777
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise settings.problem(at, f"{path} cannot be read: {error.strerror}") from error
    if mode & 0o077 and not guarded:
        raise settings.problem(at, f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")
    return _text(content, settings, at)


def _text(content: bytes, settings: Settings, at: KeyPath) -> str:
    if len(content) > _MAX_BYTES:
        raise settings.problem(at, f"the file holds more than {_MAX_BYTES} bytes; it must hold the secret alone")
    try:
        return content.decode().strip()
    except UnicodeDecodeError as error:
        raise settings.problem(at, "the file must hold UTF-8 text") from error
