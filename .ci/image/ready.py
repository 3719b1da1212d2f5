#!/usr/bin/python3 -ISs
"""Whether the node of this container is ready: asks `GET /ready` over the operator's socket, and prints the answer.

The exit status is 0 if it is ready, and 1 otherwise: the health check of the image.
"""

import os
import socket
import sys

SECONDS = 4


def main() -> int:
    path = os.path.join(os.environ.get("SVCD_DATA_DIR", "/var/lib/svcd"), "operator.sock")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            connection.sendall(b"GET /ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError as error:
        print(f"the node does not answer at {path}: {error}")
        return 1
    head, _, body = answer.partition(b"\r\n\r\n")
    print(body.decode(errors="replace"))
    return 0 if head.split()[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
