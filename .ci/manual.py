"""Writes the manual pages svc(1), svcd(8) and svcd.toml(5) from the help of the commands and from conf/svcd.toml.

    python .ci/manual.py FOLDER CONFIGURATION SECONDS

with an environment in which svcd is installed; SECONDS since 1970 are the date of the pages.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc
from svcd.tap import Options

PAGES = "`svc help` lists the pages of the documentation; `svc help operations` is the one about running a node."
PARAGRAPHS = re.compile(r"\n[ \t]*\n")
EXAMPLE_IN_TOML = re.compile(r"# (\[\[|[a-zA-Z]+ = )")


def escaped(text: str) -> str:
    """Text as roff takes it, in which a command between backticks is bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha")
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text.replace("~", "\\(ti"))
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in text.splitlines())


def filled(text: str) -> str:
    """A paragraph on lines as long as in a source file; roff joins them."""
    lines = textwrap.wrap(" ".join(text.split()), 72, break_long_words=False, break_on_hyphens=False)
    return escaped("\n".join(lines))


def as_is(lines: Iterable[str]) -> str:
    """Lines that stay as they are, indented."""
    text = escaped("\n".join(lines))
    return f".PP\n.RS 4\n.nf\n{text}\n.fi\n.RE"


def bold(text: str) -> str:
    """A line of bold text."""
    return f"\\fB{escaped(text)}\\fR"


def item(heading: str, text: str) -> str:
    """An entry of a list; ``heading`` is bold."""
    return f".TP\n{bold(heading)}\n{filled(text)}"


def title(name: str, section: int, summary: str, time: datetime) -> str:
    """The beginning of a page."""
    head = f'.TH {escaped(name)} {section} {time:%Y-%m-%d} "svcd {escaped(version("svcd"))}"'
    return f".\\\" Made from the program's own help.\n{head}\n.SH NAME\n{escaped(name)} \\- {escaped(summary)}"


def described(help_text: str) -> Iterator[str]:
    """The paragraphs of a command's help: text, and examples after a line with \\b."""
    for number, paragraph in enumerate(PARAGRAPHS.split(help_text.strip())):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            heading, _, example = rest.partition("\n")
            yield f".PP\n{escaped(heading.strip())}"
            yield as_is(textwrap.dedent(example).splitlines())
        else:
            yield f".PP\n{filled(paragraph)}" if number else filled(paragraph)


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    """The options of a command, as its help has them."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None and "--help" not in parameter.opts:
            yield item(record[0], record[1])


def called(command: click.Command, context: click.Context) -> str:
    """How a command is called, without its options."""
    return " ".join([context.command_path, *command.collect_usage_pieces(context)]).replace(" [OPTIONS]", "")


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """All commands below a group, each after its group."""
    for name, command in sorted(group.commands.items()):
        found = command.load() if isinstance(command, LazyCommand) else command
        inner = click.Context(found, parent=context, info_name=name)
        yield found, inner
        if isinstance(found, click.Group):
            yield from commands(found, inner)


def svc_page(time: datetime) -> str:
    """svc(1)."""
    top = click.Context(svc, info_name="svc", color=False)
    parts = [
        title("svc", 1, "read the chain from a node, keep a wallet, watch for payments, and operate a node", time),
        ".SH SYNOPSIS\n.B svc\n[options]\n.I command\n[options] [arguments]",
        ".SH DESCRIPTION",
        *described(svc.help or ""),
        f".PP\n{filled('Each command also has -h and --help, which show what is here about it.')}",
        ".SH OPTIONS",
        *options(svc, top),
        ".SH COMMANDS",
    ]
    for command, context in commands(svc, top):
        parts += [
            f".SS {escaped(called(command, context))}",
            *described(command.help or ""),
            *options(command, context),
        ]
    parts.append(f".SH SEE ALSO\n.BR svcd (8),\n.BR svcd.toml (5)\n.PP\n{filled(PAGES)}")
    return "\n".join(parts) + "\n"


def svcd_page(time: datetime) -> str:
    """svcd(8)."""
    node = Options()
    files = {
        "/etc/svcd/svcd.toml": "The settings of the node that systemd runs: svcd.toml(5).",
        "/var/lib/svcd": "Its data: the chain, its keys, and the operator's socket. operator.key receives the rewards "
        "of its blocks: keep a copy in a safe place.",
        "/etc/credstore/svcd.*": "The secrets that systemd passes to it, such as those of webhooks.",
    }
    assigned = (node.opt_set.__doc__ or "").strip()
    parts = [
        title("svcd", 8, "a node of a blockchain with a payment system for shops", time),
        ".SH SYNOPSIS\n.B /opt/svcd/bin/twistd \\-n \\-\\-pidfile= svcd\n[options]",
        ".SH DESCRIPTION",
        filled(
            "Runs a node of the chain. systemd starts it as `svcd.service`; `svc node` shows its state and changes it."
        ),
        ".SH OPTIONS",
        *(item(f"--{name}=VALUE", text) for name, _, _, text in sorted(node.optParameters)),
        item("--set=SECTION.KEY=VALUE", assigned),
        ".SH FILES",
        *(item(name, text) for name, text in files.items()),
        ".SH SIGNALS",
        item("SIGTERM", "Ends the node, after requests in progress and with status 0."),
        item("SIGHUP", "Reads the settings again, as `svc node reload` does."),
        f".SH SEE ALSO\n.BR svc (1),\n.BR svcd.toml (5),\n.BR systemctl (1)\n.PP\n{filled(PAGES)}",
    ]
    return "\n".join(parts) + "\n"


def settings(lines: Iterable[str]) -> Iterator[str]:
    """The sections and keys of conf/svcd.toml, whose comments explain the keys below them."""
    comments: list[str] = []
    keys: list[str] = []

    def block() -> Iterator[str]:
        if keys:
            yield ".TP\n" + "\n.TQ\n".join(map(bold, keys))
        text = [line[2:] for line in comments if not EXAMPLE_IN_TOML.match(line)]
        if text:
            yield filled(" ".join(text)) if keys else f".PP\n{filled(' '.join(text))}"
        example = [line[2:] for line in comments if EXAMPLE_IN_TOML.match(line)]
        if example:
            yield f".RS\n{as_is(example)}\n.RE"
        comments.clear()
        keys.clear()

    for line in lines:
        if line.startswith("# "):
            if keys:
                yield from block()
            comments.append(line)
        elif line.startswith("#"):
            keys.append(line[1:])
        else:
            yield from block()
            if line.startswith("["):
                yield f".SS {escaped(line)}"
    yield from block()


def toml_page(configuration: str, time: datetime) -> str:
    """svcd.toml(5)."""
    _, _, rest = configuration.partition("\n\n")
    parts = [
        title("svcd.toml", 5, "the settings of a node of svcd", time),
        ".SH DESCRIPTION",
        filled(
            "A file in TOML form. Each key is here with its default. Rates are per second and client; file names are "
            "relative to dataDir. With a wrong setting the node does not start, and says in one sentence which and why."
        ),
        ".SH SETTINGS",
        *settings(rest.splitlines()),
        f".SH SEE ALSO\n.BR svcd (8),\n.BR svc (1)\n.PP\n{filled(PAGES)}",
    ]
    return "\n".join(parts) + "\n"


def main(folder: Path, configuration: Path, seconds: int) -> None:
    """Write the three pages into a folder."""
    time = datetime.fromtimestamp(seconds, UTC)
    pages = {
        "svc.1": svc_page(time),
        "svcd.8": svcd_page(time),
        "svcd.toml.5": toml_page(configuration.read_text(encoding="utf-8"), time),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
