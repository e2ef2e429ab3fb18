"""The files of deploy/: that they are what Kubernetes takes, grant nothing, and configure a mesh that starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from snavio.config import installed, validate_all
from snavio.config.sections import SERVICES, split_address
from snavio.config.sources import ENVIRONMENT_PREFIX
from snavio.domain.identity import IdentityKind
from snavio.rpc.authorisation import TABLE
from tools.generate_kubernetes import BASE, PORTS, callers, files

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("1.30", "1.34", "1.37")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


def base() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(BASE.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in base() if each["kind"] == kind}


def pods() -> dict[str, dict[str, Any]]:
    return {name: each["spec"]["template"]["spec"] for name, each in of_kind("StatefulSet").items()}


def containers() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}/{each['name']}", each)
        for name, pod in pods().items()
        for each in [*pod.get("initContainers", ()), *pod["containers"]]
    ]


def valid_settings(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name in [each for each in os.environ if each.startswith(ENVIRONMENT_PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    validate_all(None, installed())


def test_written_base_is_what_the_tables_say() -> None:
    assert {path.name: path.read_text() for path in BASE.glob("*.yaml")} == files()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_is_what_that_kubernetes_takes(version: str) -> None:
    for document in base():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_is_refused() -> None:
    (document,) = [each for each in base() if each["kind"] == "PodDisruptionBudget"][:1]
    document["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not there")
def test_kustomize_builds_the_base_with_everything_in_it() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, timeout=60, check=True
    )
    kinds = sorted((each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built.stdout))
    assert kinds == sorted((each["kind"], each["metadata"]["name"]) for each in base())


def test_there_is_one_of_each_for_every_service() -> None:
    for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        assert set(of_kind(kind)) == set(SERVICES)


@pytest.mark.parametrize(
    ("name", "container"), containers(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_container_has_no_right_and_a_bound(name: str, container: dict[str, Any]) -> None:
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert "valueFrom" not in str(container.get("env", "")), "secrets come as files"


def test_pods_are_unprivileged_and_have_no_token_of_the_cluster() -> None:
    for pod in pods().values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (main,) = pod["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(main)
        assert main["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_no_secret_stands_in_a_file() -> None:
    assert of_kind("Secret") == {}
    assert "snv1." not in "".join(path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file())


def test_policies_let_in_who_the_authorisation_table_lets_in_and_nobody_else() -> None:
    for name, policy in of_kind("NetworkPolicy").items():
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        let_in = {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in spec["ingress"]
            for peer in rule["from"]
            if "podSelector" in peer
        }
        # Read from the table another way than the generator does.
        expected = set()
        for method, rules in TABLE.items():
            if method.lower().startswith(f"/snavio.v1.{name}/"):
                for rule in rules:
                    if rule.kind is IdentityKind.MESH:
                        expected |= set(rule.names) or set(SERVICES)
        assert let_in == expected - {name}
        assert all(rule["from"] for rule in spec["ingress"]), "an empty `from` is everybody"


def test_fast_can_be_reached_by_shield_alone() -> None:
    assert callers("fast") == (["shield"], False)
    assert callers("shield") == ([], True)


def test_egress_is_to_whom_a_service_may_call() -> None:
    for name, policy in of_kind("NetworkPolicy").items():
        reached = {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in policy["spec"]["egress"]
            for peer in rule.get("to", ())
        }
        assert reached == {other for other in PORTS if other != name and name in callers(other)[0]}
        assert {"signer", "relay"} - {name} <= reached


def test_settings_of_the_cluster_are_a_valid_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    data = of_kind("ConfigMap")["snavio-mesh"]["data"]
    valid_settings(monkeypatch, data)
    for service, port in PORTS.items():
        assert split_address(data[f"SNAVIO_MESH__{service.upper()}"]) == (service, port)


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_composed_service_has_no_right_and_valid_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = COMPOSE["services"][name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    valid_settings(monkeypatch, service["environment"])
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_composed_services_are_all_there_and_share_no_state() -> None:
    services = COMPOSE["services"]
    assert set(services) == {*SERVICES, "prepare", "tokens"}
    for name in SERVICES:
        states = [volume for volume in services[name]["volumes"] if volume.endswith(":/var/lib/snavio")]
        assert states == [f"{name}:/var/lib/snavio"]
