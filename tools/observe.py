"""Starts Prometheus beside the mesh that runs on this machine, with the alarms of `deploy/observability`.

Never starts a mesh, never installs anything, and ends Prometheus with itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from snavio.config import MeshSettings  # noqa: E402
from snavio.config.safety import is_loopback  # noqa: E402
from snavio.errors import SnavioError  # noqa: E402
from snavio.launch.installation import attach  # noqa: E402
from snavio.launch.processes import SERVICES  # noqa: E402

RULES = ROOT / "deploy" / "observability" / "rules.yml"
UNPACKED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
SCRAPER = "job-scraper"


def program(name: str) -> Path | None:
    """A program of the package prometheus: installed, or unpacked by `make prometheus`."""
    found = shutil.which(name)
    if found:
        return Path(found)
    return UNPACKED / name if (UNPACKED / name).is_file() else None


def configuration(mesh: MeshSettings) -> dict[str, Any]:
    """Prometheus's configuration, in JSON, which is YAML."""
    plain = {
        name: address
        for name in SERVICES
        if (address := mesh.health_address(name)) is not None and is_loopback(address)
    }
    secured = {
        name: address
        for name in SERVICES
        if (address := mesh.health_address(name)) is not None and not is_loopback(address)
    }
    jobs = [_job(plain)] if plain else []
    if secured:
        folder = mesh.certificates(SCRAPER)
        tls = {
            # Certificates name the service and not its host, which Prometheus would look for. It shows its own all the
            # same, and that is what keeps strangers from the metrics.
            "insecure_skip_verify": True,
            "ca_file": str(folder / "ca.pem"),
            "cert_file": str(folder / "cert.pem"),
            "key_file": str(folder / "key.pem"),
        }
        jobs.append({**_job(secured), "job_name": "snavio-tls", "scheme": "https", "tls_config": tls})
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }


def _job(services: Mapping[str, str]) -> dict[str, Any]:
    return {
        "job_name": "snavio",
        "static_configs": [
            {"targets": [address], "labels": {"service": name, "instance": name}}
            for name, address in services.items()
        ],
    }


def main() -> int:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Starts Prometheus beside the mesh that runs here.")
    parser.add_argument("--state-dir", type=Path, default=None, help="state folder of the mesh")
    parser.add_argument("--listen", default="127.0.0.1:9090", help="where Prometheus answers")
    parser.add_argument("--write-only", action="store_true", help="write its configuration and end")
    asked = parser.parse_args()
    try:
        here = attach(state_dir=asked.state_dir, config=None)
        if here.state.running() is None:
            sys.stderr.write("No mesh runs here: start one with `make up`, in another terminal.\n")
            return 2
    except SnavioError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    folder = here.mesh.state_dir / "prometheus"
    folder.mkdir(mode=0o700, exist_ok=True)
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(configuration(here.mesh), indent=2) + "\n", "utf-8")
    if asked.write_only:
        sys.stdout.write(f"{config}\n")
        return 0
    prometheus = program("prometheus")
    if prometheus is None:
        sys.stderr.write("Prometheus is not there: `make prometheus` unpacks the distribution's package.\n")
        return 2
    sys.stdout.write(
        f"Prometheus answers at http://{asked.listen}; its data is in {folder}. Ctrl-C ends it.\n"
    )
    sys.stdout.write(f"For Grafana: the dashboards in {RULES.parent / 'dashboards'}.\n")
    sys.stdout.flush()
    command = [
        str(prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={asked.listen}",
        "--log.level=warn",
    ]
    os.chdir(folder)
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
