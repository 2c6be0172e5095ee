"""The objects of the chart: valid, closed, without secrets, and of a form that upgrades keep."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.settings.known import SETTINGS
from benchmarks.harness.proxy_process import program
from helm.reference import CHART
from sketch.proxies import shipped
from tests.chart.conftest import EXAMPLES, Manifest, Render
from tests.chart.foreign import mistakes

pytestmark = pytest.mark.chart

OLDEST, NEWEST = "1.30", "1.37"
RECORDED = CHART.parent / "immutable.yaml"


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pods(manifests: list[Manifest]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and specification of every pod."""
    workloads = of_kind(manifests, "Deployment", "StatefulSet", "Job")
    named_specs = [
        (manifest["metadata"]["name"], manifest["spec"]["template"]["spec"])
        for manifest in workloads
    ]
    return named_specs + [
        (manifest["metadata"]["name"], manifest["spec"]) for manifest in of_kind(manifests, "Pod")
    ]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(manifests: list[Manifest], version: str) -> None:
    for manifest in manifests:
        errors = mistakes(manifest)
        if errors is None:  # it is Kubernetes' own, or refused as unknown
            kubernetes_validate.validate(manifest, version, strict=True)
        else:
            assert errors == [], manifest["metadata"]["name"]


FOREIGN = {"BackendTLSPolicy", "HTTPRoute", "PrometheusRule", "ServiceMonitor"}


def test_the_examples_have_every_kind_of_the_chart(render: Render) -> None:
    rendered = [manifest for path in EXAMPLES for manifest in render("-f", str(path))]
    assert {manifest["kind"] for manifest in rendered if mistakes(manifest) is not None} == FOREIGN
    kinds = {
        kind
        for path in CHART.glob("templates/**/*.yaml")
        for kind in re.findall(r"^kind: (\w+)", path.read_text(), re.MULTILINE)
    }
    assert kinds <= {manifest["kind"] for manifest in rendered}


@pytest.mark.parametrize(
    ("kind", "path", "location"),
    [
        ("ServiceMonitor", ("endpoints", 0, "intervall"), "spec/endpoints/0"),
        ("ServiceMonitor", ("endpoints", 0, "interval"), "spec/endpoints/0/interval"),
        ("HTTPRoute", ("rules", 0, "backendRefs", 0, "port"), "spec/rules/0/backendRefs/0/port"),
        ("HTTPRoute", ("hosts",), "spec"),
        ("PrometheusRule", ("groups", 0, "rules", 0, "expr"), "spec/groups/0/rules/0/expr"),
        ("PrometheusRule", ("groups", 0, "name"), "spec/groups/0/name"),
    ],
)
def test_a_mistake_in_a_foreign_kind_is_located(
    render: Render, kind: str, path: tuple[str | int, ...], location: str
) -> None:
    rendered = render("-f", str(CHART / "ci" / "everything-values.yaml"))
    [manifest] = of_kind(rendered, kind)
    node: Any = manifest["spec"]
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = ["wrong"]
    assert [mistake.partition(":")[0] for mistake in mistakes(manifest) or []] == [location]


def test_an_unknown_kind_is_not_reported_as_valid() -> None:
    unknown = {"apiVersion": "example.org/v1", "kind": "Unheard", "metadata": {"name": "x"}}
    assert mistakes(unknown) is None
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        kubernetes_validate.validate(unknown, NEWEST, strict=True)


def test_the_oldest_tested_version_is_the_minimum_in_the_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_every_pod_is_locked_down(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name


def test_every_pod_is_under_a_policy_for_what_it_reaches(manifests: list[Manifest]) -> None:
    policies = [
        manifest["spec"]
        for manifest in of_kind(manifests, "NetworkPolicy")
        if "Egress" in manifest["spec"]["policyTypes"]
    ]
    workloads = of_kind(manifests, "Deployment", "StatefulSet", "Job")
    labels = [manifest["spec"]["template"]["metadata"]["labels"] for manifest in workloads]
    labels += [manifest["metadata"]["labels"] for manifest in of_kind(manifests, "Pod")]
    for pod_labels in labels:
        assert any(selects(policy["podSelector"], pod_labels) for policy in policies), pod_labels


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    return selector["matchLabels"].items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def test_the_admin_api_is_not_reachable_from_outside(manifests: list[Manifest]) -> None:
    services = {
        manifest["metadata"]["name"]: manifest["spec"] for manifest in of_kind(manifests, "Service")
    }
    admin = {
        name
        for name, spec in services.items()
        if any(port["targetPort"] == "admin" for port in spec["ports"])
    }
    assert len(admin) == 1
    for name in admin:
        assert services[name]["type"] == "ClusterIP"
        assert [port["targetPort"] for port in services[name]["ports"]] == ["admin"]
    for entry in of_kind(manifests, "Ingress", "HTTPRoute"):
        assert not re.search(rf"\b({'|'.join(admin)})\b", yaml.safe_dump(entry["spec"]))


def test_no_object_holds_a_secret(manifests: list[Manifest]) -> None:
    assert of_kind(manifests, "Secret") == []
    for name, pod in pods(manifests):
        for variable in pod["containers"][0].get("env", []):
            value = variable.get("value", "")
            assert not re.search(r"://[^/@]*:[^/@]*@", value), (name, variable["name"])
            if "TOKEN" in variable["name"]:
                assert "secretKeyRef" in variable["valueFrom"]


def test_every_given_setting_exists(manifests: list[Manifest]) -> None:
    known_settings = {
        f"PORTOLAN_{name.upper()}" for model in SETTINGS for name in model.model_fields
    }
    for _, pod in pods(manifests):
        variables = {variable["name"] for variable in pod["containers"][0].get("env", [])}
        settings = {name for name in variables if name.startswith("PORTOLAN_")}
        assert settings <= known_settings | {"PORTOLAN_PURGE_TOKEN"}


def test_every_object_has_the_standard_labels(manifests: list[Manifest]) -> None:
    suffixes = ("name", "instance", "version", "component", "part-of", "managed-by")
    expected = {f"app.kubernetes.io/{suffix}" for suffix in suffixes} | {"helm.sh/chart"}
    for manifest in manifests:
        if not manifest["metadata"]["name"].endswith("-more"):  # an object of the user's own
            assert expected <= manifest["metadata"]["labels"].keys(), manifest["metadata"]["name"]


def immutable(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the fields that Kubernetes lets no upgrade change, by object."""
    immutable_fields = (
        "selector",
        "serviceName",
        "volumeClaimTemplates",
        "podManagementPolicy",
        "clusterIP",
    )
    kinds = ("Deployment", "StatefulSet", "PersistentVolumeClaim")
    objects = {}
    for manifest in of_kind(manifests, *kinds):
        spec = manifest["spec"]
        fields = (
            spec
            if manifest["kind"] == "PersistentVolumeClaim"
            else {name: spec[name] for name in immutable_fields if name in spec}
        )
        objects[f"{manifest['kind']}/{manifest['metadata']['name']}"] = fields
    return objects


def test_an_upgrade_from_every_earlier_version_is_possible(render: Render) -> None:
    """The record of a version stands as long as its number begins with the same digits."""
    recorded = yaml.safe_load(RECORDED.read_text())
    assert recorded, "nothing is recorded"
    current = {path.stem: immutable(render("-f", str(path))) for path in EXAMPLES}
    for version, examples in recorded.items():
        for example, objects in examples.items():
            for name, fields in objects.items():
                assert current[example].get(name) == fields, (version, example, name)


@pytest.mark.parametrize("purge_by", ["ban", "xkey"])
def test_varnish_compiles_the_shipped_rules(render: Render, tmp_path: Path, purge_by: str) -> None:
    example = ("-f", str(CHART / "ci" / "everything-values.yaml"))
    config_maps = of_kind(render(*example, "--set", f"varnish.purgeBy={purge_by}"), "ConfigMap")
    rules = next(
        config_map for config_map in config_maps if config_map["metadata"]["name"] == "sea-varnish"
    )["data"]
    for name in rules.keys() - {"site.vcl"}:
        assert rules[name].strip() == (shipped("varnish") / name).read_text().strip()
    assert f'include "portolan-{purge_by}.vcl";' in rules["site.vcl"]
    assert_compiles(
        tmp_path, {**rules, "site.vcl": rules["site.vcl"].replace("sea-api", "127.0.0.1")}
    )


def assert_compiles(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).write_text(text)
    # No jail: it requires root, and the users of Debian's package.
    command = ("-C", "-j", "none", "-n", str(directory / "work"), "-p", f"vcl_path={directory}")
    result = subprocess.run(
        [program("varnishd"), *command, "-f", str(directory / "site.vcl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_rules_of_varnish_restart_it_when_they_change(render: Render, copy: Path) -> None:
    arguments = ("-f", str(CHART / "ci" / "everything-values.yaml"))

    def checksum(chart: Path) -> str:
        sets = of_kind(render(*arguments, chart=chart), "StatefulSet")
        return str(sets[0]["spec"]["template"]["metadata"]["annotations"]["checksum/rules"])

    before = checksum(copy)
    rules = copy / "files" / "varnish" / "portolan.vcl"
    rules.write_text(rules.read_text() + "# changed\n")
    assert checksum(copy) != before


def test_a_package_is_complete(tmp_path: Path, render: Render) -> None:
    """Links within the chart are followed, and the tests of a release are included."""
    helm = str(CHART.parents[1] / ".tools" / "helm")
    subprocess.run(
        [helm, "package", str(CHART), "-d", str(tmp_path)], check=True, capture_output=True
    )
    (package,) = tmp_path.glob("portolan-*.tgz")
    example = ("-f", str(CHART / "ci" / "everything-values.yaml"))
    assert render(*example, chart=package) == render(*example)
    assert of_kind(render(*example, chart=package), "Pod")
