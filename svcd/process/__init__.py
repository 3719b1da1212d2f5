"""What a process needs to live under twistd and systemd: options, start and stop in order, logs, timers, notices."""
