"""One target under atheris: `python -m tests.fuzz.one TARGET CORPUS [libFuzzer's options]`."""

import sys

import atheris

with atheris.instrument_imports(include=["svcd", "json", "urllib", "twisted.web"]):
    from tests.fuzz.parsers import TARGETS


def main() -> None:
    """Fuzz until the options say stop, or until a law is broken."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name].check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
