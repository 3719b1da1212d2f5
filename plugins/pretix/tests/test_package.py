"""What can be seen without a node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from babel.messages.pofile import read_po
from django.core.management import call_command

import pretix_svc_pay

PACKAGE = Path(pretix_svc_pay.__file__).parent


def texts(package):
    with (package / "locale" / "de" / "LC_MESSAGES" / "django.po").open("rb") as file:
        return {message.id: message for message in read_po(file, locale="de") if message.id}


def test_every_text_is_translated(tmp_path, monkeypatch):
    known = texts(PACKAGE)
    for message in known.values():
        translated = message.string if isinstance(message.string, tuple) else (message.string,)
        assert all(translated), message.id
        assert not message.fuzzy, message.id
    copy = tmp_path / "pretix_svc_pay"
    shutil.copytree(PACKAGE, copy)
    monkeypatch.chdir(copy)
    call_command("makemessages", locale=["de"], verbosity=0)
    assert known.keys() == texts(copy).keys()


def test_the_german_texts_do_not_tell_readers_that_they_pay_nothing():
    """"They" of coins is "sie" in German, which at the beginning of a sentence addresses the reader."""
    for message in texts(PACKAGE).values():
        translated = message.string if isinstance(message.string, tuple) else (message.string,)
        assert not any("Sie bezahlen nichts" in text for text in translated), message.id


def test_the_package_contains_what_it_needs_when_it_runs(tmp_path):
    here = PACKAGE.parent
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns("*.mo", "*.egg-info", "build", "__pycache__")
    shutil.copytree(here, copy, ignore=ignored)
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, copy],
        check=True, env=environment,
    )
    with ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("pretix_svc_pay/")}
    source = copy / "pretix_svc_pay"
    needed = {f"pretix_svc_pay/{path.relative_to(source)}" for path in source.rglob("*") if path.is_file()}
    assert "pretix_svc_pay/locale/de/LC_MESSAGES/django.mo" in packed
    assert packed == needed | {"pretix_svc_pay/locale/de/LC_MESSAGES/django.mo"}
