"""Packaging of svcd.

Why a setup.py with a hand-written package list: ``find_packages`` cannot see the twistd plugin, which lives in a
directory without ``__init__.py`` that Twisted itself shares. ``package_dir`` makes an editable install a plain ``.pth``
line; setuptools' import finder would hide the plugin from ``twisted.plugins``.
"""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent

setup(
    name="svcd",
    version="0.0.1",
    description="A blockchain node with a payment layer, built on Twisted",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    package_dir={"": "."},
    packages=[
        "svcd",
        "svcd.chain",
        "svcd.cli",
        "svcd.cli.merchant",
        "svcd.cli.operator",
        "svcd.cli.wallet",
        "svcd.commerce",
        "svcd.composition",
        "svcd.config",
        "svcd.light",
        "svcd.metrics",
        "svcd.net",
        "svcd.node",
        "svcd.p2p",
        "svcd.pages",
        "svcd.process",
        "svcd.rpc",
        "svcd.store",
        "svcd.web",
        "twisted.plugins",
    ],
    package_data={
        "svcd": ["py.typed"],
        "svcd.cli": ["docs/*.md"],
        "svcd.cli.operator": ["devnet.toml"],
        "svcd.store": ["schema/*.sql", "webhooks/*.sql", "mempool/*.sql"],
        "svcd.pages": ["*.html", "static/*", "texts/*.json"],
    },
    install_requires=[
        "Twisted[tls]>=26.10",
        "apsw>=3.54.1.0",
        "argon2-cffi>=25.1",
        "attrs>=25.1",
        "cattrs>=25.1",
        "click>=8.4",
        "klein>=24.8",
        "mnemonic>=0.21",
        "prometheus-client>=0.22",
        "PyNaCl>=1.6.2",
        "segno>=1.6.6",
        "Werkzeug>=3.1",
        "cryptography>=46.0",
        "pyOpenSSL>=25.3",
        "service-identity>=24.2",
        "treq>=26.7",
        "zope.interface>=8.0",
    ],
    extras_require={
        "postgresql": ["psycopg[binary]>=3.3.9"],
        "test": [
            "axe-playwright-python>=0.1.4",
            "coverage>=7.10.6",
            "flask>=3.1",
            "httpcore>=1.0",
            "httpx>=0.28",
            "hypothesis>=6.130.12",
            "jsonschema>=4.23",
            "mypy>=1.18.1",
            "openapi-spec-validator>=0.7.1",
            "pillow>=12.0",
            "playwright>=1.60",
            "psycopg[binary]>=3.3.9",
            "pytest>=9.0",
            "pytest-twisted>=1.14.3",
            "ruff>=0.14",
            "schemathesis>=4.32.5",
            "setuptools>=77.0.3",
            "websocket-client>=1.8",
            "zxing-cpp>=2.3",
        ],
        "fuzz": ["atheris>=3.0.0"],
        "mutate": ["mutmut>=3.8.1"],
    },
    entry_points={"console_scripts": ["svc=svcd.cli.main:main"]},
)
