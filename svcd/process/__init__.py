"""The process under twistd: options, logs, start and stop of services, signals, systemd, data directory."""
