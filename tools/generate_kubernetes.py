"""Writes deploy/kubernetes/base from one table: a StatefulSet, Service, budget and network policy for each service.

Who may call whom comes from the authorisation table, so a policy cannot lag behind a new RPC. `--check` only compares.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

from snavio.domain.identity import IdentityKind
from snavio.rpc.authorisation import TABLE

ROOT: Final = Path(__file__).resolve().parents[1]
BASE: Final = ROOT / "deploy" / "kubernetes" / "base"
USER: Final = 10001
HEALTH_ABOVE: Final = 60
ENROLMENT: Final = 7414
HTTPS: Final = 7443
PORTS: Final = {
    "shield": 7401,
    "fast": 7402,
    "slow": 7403,
    "signer": 7404,
    "registry": 7405,
    "mailbox": 7406,
    "relay": 7407,
    "gateway": 7408,
}
"""As [mesh] has them by default; health ports are 60 above."""
MEMORY: Final = {"mailbox": ("256Mi", "2Gi"), "shield": ("256Mi", "2Gi"), "relay": ("256Mi", "1Gi")}
DISK: Final = {"mailbox": "20Gi", "relay": "20Gi", "registry": "5Gi", "signer": "2Gi"}
PARQUET: Final = ("relay",)
"""They need the image with pyarrow."""
TENANTS: Final = {"snavio.local/clients": "true"}
"""Label of the namespaces whose pods may reach what tenants and operators call."""
_METHODS: Final = {
    "snavio.v1.Enrolment": "signer",
    **{f"snavio.v1.{name.capitalize()}": name for name in PORTS},
}
_EVERYWHERE: Final = ("snavio.v1.Introspection", "grpc.health", "grpc.reflection", "snavio.v1.Explain")


def callers(service: str) -> tuple[list[str], bool]:
    """The services that may call `service`, and True if tenants, operators or jobs may too."""
    found: set[str] = set()
    outside = service == "gateway"
    for method, rules in TABLE.items():
        package = method.split("/")[1]
        if _METHODS.get(package) != service:
            continue
        for rule in rules:
            if rule.kind is IdentityKind.MESH:
                found |= set(rule.names or PORTS)
            else:
                outside = True
    return sorted(found - {service}), outside


def ports(service: str) -> dict[str, int]:
    """Name and number of each port that others call."""
    found = {"grpc": PORTS[service]}
    if service == "signer":
        found["enrolment"] = ENROLMENT
    if service == "gateway":
        found["https"] = HTTPS
    return found


def stateful_set(service: str) -> dict[str, Any]:
    """One replica: another needs addresses of its own, and for the stores another engine."""
    health = PORTS[service] + HEALTH_ABOVE
    request, limit = MEMORY.get(service, ("128Mi", "512Mi"))
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    ]
    mounts = [
        {"name": "state", "mountPath": "/var/lib/snavio"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the container's own
    ]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if service == "signer":
        pod["initContainers"] = [container(service, "init", [f"services.{service}", "init"], mounts[:2])]
    else:
        # Made on Signer's pod, and gone from use after the first start; absent after that it hinders nothing.
        volumes.append(
            {
                "name": "join",
                "secret": {
                    "secretName": "snavio-join",
                    "optional": True,
                    "defaultMode": 0o440,
                    "items": [{"key": f"{service}.token", "path": f"{service}.token"}],
                },
            }
        )
        mounts.append({"name": "join", "mountPath": "/var/lib/snavio-join", "readOnly": True})
    main = container(service, service, [f"services.{service}"], mounts)
    main["ports"] = [
        *({"name": name, "containerPort": port} for name, port in ports(service).items()),
        {"name": "health", "containerPort": health},
    ]
    for probe, path, more in (
        ("startupProbe", "/livez", {"periodSeconds": 2, "failureThreshold": 60}),
        ("livenessProbe", "/livez", {"periodSeconds": 10, "failureThreshold": 6}),
        ("readinessProbe", "/readyz", {"periodSeconds": 3, "failureThreshold": 2}),
    ):
        main[probe] = {
            "httpGet": {"path": path, "port": "health", "scheme": "HTTPS"},
            "timeoutSeconds": 3,
            **more,
        }
    main["resources"] = {"requests": {"cpu": "100m", "memory": request}, "limits": {"memory": limit}}
    if service != "signer":
        main["env"] = [{"name": "SNAVIO_MESH__JOIN_TOKEN", "value": f"/var/lib/snavio-join/{service}.token"}]
    pod["containers"] = [main]
    pod["volumes"] = volumes
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": service, "labels": labels(service)},
        "spec": {
            "serviceName": service,
            "replicas": 1,
            "selector": {"matchLabels": labels(service)},
            "template": {"metadata": {"labels": labels(service)}, "spec": pod},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "state"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": DISK.get(service, "1Gi")}},
                    },
                }
            ],
        },
    }


def container(service: str, name: str, words: list[str], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """A container of the image, without any right."""
    return {
        "name": name,
        "image": "snavio-relay" if service in PARQUET else "snavio",
        "args": words,
        "envFrom": [{"configMapRef": {"name": "snavio-mesh"}}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }


def labels(service: str) -> dict[str, str]:
    """Labels of everything of a service."""
    return {"app.kubernetes.io/name": "snavio", "app.kubernetes.io/component": service}


def headless(service: str) -> dict[str, Any]:
    """Stable names, and no balancer: streams stay where they were opened."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service, "labels": labels(service)},
        "spec": {
            "clusterIP": "None",
            # Joining and the others' start need each other before they are ready.
            "publishNotReadyAddresses": True,
            "selector": labels(service),
            "ports": [
                {"name": name, "port": port, "targetPort": name} for name, port in ports(service).items()
            ],
        },
    }


def budget(service: str) -> dict[str, Any]:
    """A node that is drained takes one at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": service, "labels": labels(service)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(service)}},
    }


def policy(service: str) -> dict[str, Any]:
    """Ingress from who may call it; egress to the services that it may call, and to names."""
    inside, outside = callers(service)
    called = [name for name in PORTS if name != service and service in callers(name)[0]]
    numbers = [{"protocol": "TCP", "port": port} for port in ports(service).values()]
    ingress: list[dict[str, Any]] = []
    if inside:
        ingress.append(
            {"from": [{"podSelector": {"matchLabels": labels(name)}} for name in inside], "ports": numbers}
        )
    if outside:
        ingress.append({"from": [{"namespaceSelector": {"matchLabels": TENANTS}}], "ports": numbers})
    # Operators ask every service for its state; probes come from the node, which policies do not stop.
    ingress.append(
        {
            "from": [{"namespaceSelector": {"matchLabels": {"snavio.local/operators": "true"}}}],
            "ports": [*numbers, {"protocol": "TCP", "port": PORTS[service] + HEALTH_ABOVE}],
        }
    )
    egress: list[dict[str, Any]] = [
        {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]},
        *(
            {
                "to": [{"podSelector": {"matchLabels": labels(name)}}],
                "ports": [{"protocol": "TCP", "port": port} for port in ports(name).values()],
            }
            for name in called
        ),
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": service, "labels": labels(service)},
        "spec": {
            "podSelector": {"matchLabels": labels(service)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def mesh_settings() -> dict[str, Any]:
    """[mesh] for all, as variables; an overlay adds Redis, AWS and the like."""
    data = {
        "SNAVIO_MESH__STATE_DIR": "/var/lib/snavio",
        "SNAVIO_MESH__PUBLIC_BIND": "true",
        "SNAVIO_MESH__ENROLMENT": f"signer:{ENROLMENT}",
        "SNAVIO_SIGNER__ENROL_LISTEN": f"0.0.0.0:{ENROLMENT}",
        "SNAVIO_MESH__HTTPS": f"gateway:{HTTPS}",
        "SNAVIO_MESH__HTTPS_LISTEN": f"0.0.0.0:{HTTPS}",
    }
    for service, port in PORTS.items():
        data[f"SNAVIO_MESH__{service.upper()}"] = f"{service}:{port}"
        data[f"SNAVIO_MESH__{service.upper()}_LISTEN"] = f"0.0.0.0:{port}"
        data[f"SNAVIO_MESH__{service.upper()}_HEALTH"] = f"0.0.0.0:{port + HEALTH_ABOVE}"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "snavio-mesh"}, "data": data}


def files() -> dict[str, str]:
    """Every file of the base by its name."""
    made = {"mesh.yaml": _yaml([mesh_settings()])}
    for service in PORTS:
        made[f"{service}.yaml"] = _yaml([make(service) for make in (stateful_set, headless, budget, policy)])
    made["kustomization.yaml"] = _yaml(
        [
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": sorted(made),
            }
        ]
    )
    return made


class _Plain(yaml.SafeDumper):
    """No anchors: a reader should not have to look elsewhere."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(documents: list[dict[str, Any]]) -> str:
    head = "# Made by tools/generate_kubernetes.py; do not edit.\n"
    return head + "---\n".join(
        yaml.dump(each, Dumper=_Plain, sort_keys=False, width=110) for each in documents
    )


def main(words: list[str]) -> int:
    """Write, or compare with `--check`."""
    wrong = []
    for name, text in files().items():
        path = BASE / name
        if "--check" in words:
            if not path.exists() or path.read_text("utf-8") != text:
                wrong.append(name)
        else:
            BASE.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if wrong:
        sys.stderr.write(
            "deploy/kubernetes/base is not what the tables say; run `make kubernetes`:\n"
            + indent("\n".join(wrong), "  ")
            + "\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
