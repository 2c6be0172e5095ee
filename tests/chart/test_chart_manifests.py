"""What the chart makes: valid, closed, without secrets, and of a form that upgrades may keep."""

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
    return [each for each in manifests if each["kind"] in kinds]


def pods(manifests: list[Manifest]) -> list[tuple[str, dict[str, Any]]]:
    """Name and specification of every pod."""
    workloads = of_kind(manifests, "Deployment", "StatefulSet", "Job")
    found = [(each["metadata"]["name"], each["spec"]["template"]["spec"]) for each in workloads]
    return found + [(each["metadata"]["name"], each["spec"]) for each in of_kind(manifests, "Pod")]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(manifests: list[Manifest], version: str) -> None:
    for each in manifests:
        found = mistakes(each)
        if found is None:  # then it is Kubernetes' own, or refused as unknown
            kubernetes_validate.validate(each, version, strict=True)
        else:
            assert found == [], each["metadata"]["name"]


FOREIGN = {"BackendTLSPolicy", "HTTPRoute", "PrometheusRule", "ServiceMonitor"}


def test_the_examples_have_every_kind_that_the_chart_may_make(render: Render) -> None:
    rendered = [each for path in EXAMPLES for each in render("-f", str(path))]
    assert {each["kind"] for each in rendered if mistakes(each) is not None} == FOREIGN
    named = {
        kind
        for path in CHART.glob("templates/**/*.yaml")
        for kind in re.findall(r"^kind: (\w+)", path.read_text(), re.MULTILINE)
    }
    assert named <= {each["kind"] for each in rendered}


@pytest.mark.parametrize(
    ("kind", "broken", "where"),
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
    render: Render, kind: str, broken: tuple[str | int, ...], where: str
) -> None:
    rendered = render("-f", str(CHART / "ci" / "everything-values.yaml"))
    [manifest] = of_kind(rendered, kind)
    at: Any = manifest["spec"]
    for step in broken[:-1]:
        at = at[step]
    at[broken[-1]] = ["wrong"]
    assert [found.partition(":")[0] for found in mistakes(manifest) or []] == [where]


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
        each["spec"]
        for each in of_kind(manifests, "NetworkPolicy")
        if "Egress" in each["spec"]["policyTypes"]
    ]
    workloads = of_kind(manifests, "Deployment", "StatefulSet", "Job")
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads]
    labels += [each["metadata"]["labels"] for each in of_kind(manifests, "Pod")]
    for each in labels:
        assert any(selects(policy["podSelector"], each) for policy in policies), each


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    return selector["matchLabels"].items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )


def test_the_admin_api_is_not_reachable_from_outside(manifests: list[Manifest]) -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "Service")}
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
            given = variable.get("value", "")
            assert not re.search(r"://[^/@]*:[^/@]*@", given), (name, variable["name"])
            if "TOKEN" in variable["name"]:
                assert "secretKeyRef" in variable["valueFrom"]


def test_every_setting_that_is_given_is_one(manifests: list[Manifest]) -> None:
    known = {f"PORTOLAN_{name.upper()}" for model in SETTINGS for name in model.model_fields}
    for _, pod in pods(manifests):
        given = {each["name"] for each in pod["containers"][0].get("env", [])}
        named = {name for name in given if name.startswith("PORTOLAN_")}
        assert named <= known | {"PORTOLAN_PURGE_TOKEN"}


def test_every_object_has_the_standard_labels(manifests: list[Manifest]) -> None:
    parts = ("name", "instance", "version", "component", "part-of", "managed-by")
    expected = {f"app.kubernetes.io/{part}" for part in parts} | {"helm.sh/chart"}
    for each in manifests:
        if not each["metadata"]["name"].endswith("-more"):  # an object of the user's own
            assert expected <= each["metadata"]["labels"].keys(), each["metadata"]["name"]


def immutable(manifests: list[Manifest]) -> dict[str, Any]:
    """What Kubernetes does not let an upgrade change, by object."""
    kept = ("selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy", "clusterIP")
    kinds = ("Deployment", "StatefulSet", "PersistentVolumeClaim")
    found = {}
    for each in of_kind(manifests, *kinds):
        spec = each["spec"]
        fields = (
            spec
            if each["kind"] == "PersistentVolumeClaim"
            else {name: spec[name] for name in kept if name in spec}
        )
        found[f"{each['kind']}/{each['metadata']['name']}"] = fields
    return found


def test_an_upgrade_from_every_earlier_version_is_possible(render: Render) -> None:
    """What was recorded of a version stands as long as its number begins with the same digits."""
    recorded = yaml.safe_load(RECORDED.read_text())
    assert recorded, "nothing is recorded"
    now = {path.stem: immutable(render("-f", str(path))) for path in EXAMPLES}
    for version, examples in recorded.items():
        for example, objects in examples.items():
            for name, fields in objects.items():
                assert now[example].get(name) == fields, (version, example, name)


@pytest.mark.parametrize("purge_by", ["ban", "xkey"])
def test_varnish_takes_the_rules_that_ship(render: Render, tmp_path: Path, purge_by: str) -> None:
    example = ("-f", str(CHART / "ci" / "everything-values.yaml"))
    config_maps = of_kind(render(*example, "--set", f"varnish.purgeBy={purge_by}"), "ConfigMap")
    rules = next(each for each in config_maps if each["metadata"]["name"] == "sea-varnish")["data"]
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
    compiled = subprocess.run(
        [program("varnishd"), *command, "-f", str(directory / "site.vcl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr


def test_the_rules_of_varnish_restart_it_when_they_change(render: Render, copy: Path) -> None:
    arguments = ("-f", str(CHART / "ci" / "everything-values.yaml"))

    def checksum(chart: Path) -> str:
        sets = of_kind(render(*arguments, chart=chart), "StatefulSet")
        return str(sets[0]["spec"]["template"]["metadata"]["annotations"]["checksum/rules"])

    before = checksum(copy)
    rules = copy / "files" / "varnish" / "portolan.vcl"
    rules.write_text(rules.read_text() + "# changed\n")
    assert checksum(copy) != before


def test_a_package_is_whole(tmp_path: Path, render: Render) -> None:
    """Links within the chart are followed, and its tests of a release are in it."""
    helm = str(CHART.parents[1] / ".tools" / "helm")
    subprocess.run(
        [helm, "package", str(CHART), "-d", str(tmp_path)], check=True, capture_output=True
    )
    (package,) = tmp_path.glob("portolan-*.tgz")
    example = ("-f", str(CHART / "ci" / "everything-values.yaml"))
    assert render(*example, chart=package) == render(*example)
    assert of_kind(render(*example, chart=package), "Pod")
