"""The manifests of `packaging/kubernetes`, as far as they can be judged without a cluster.

    target/test-tools/lint/bin/python tests/packaging/manifests.py --tools target/test-tools

Each document is valid by the schemas of Kubernetes, which know every field; names, ports and labels agree with each
other and with what the documentation has its readers type; settings are those that Jupyter's servers know. Then each
check is shown manifests with an error of the kind it is there for.
"""

import argparse
import copy
import functools
import json
import re
import shlex
import subprocess
from pathlib import Path

import kubernetes_validate
from report import StepFailure, Steps, expect
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFESTS = ROOT / "packaging/kubernetes"
DOCKERFILE = MANIFESTS / "kernel/Dockerfile"
PAGE = ROOT / "docs/remote-kernels.md"

OLDEST = "1.30"
"""The oldest Kubernetes whose schemas the manifests are held against; the newest is the newest that is known."""

OF_THE_CLUSTER = {"kube-system", "ingress-controller"}
"""Namespaces that the manifests name and do not make; the second is the reader's to name."""

OF_THE_IMAGE = {
    "EG_CULL_CONNECTED",
    "EG_CULL_IDLE_TIMEOUT",
    "EG_ALLOWED_KERNELS",
    "EG_LOG_LEVEL",
}
"""Settings that `start-enterprise-gateway.sh` in the gateway's image makes flags of: the Python package has no word of
them."""

BY_NAMESPACE = "kubernetes.io/metadata.name"
"""The label by which a policy means a namespace: Kubernetes gives it to each."""


def documents():
    """The documents in the files. A key that stands twice is an error. Those for agent-sandbox are tested with its kinds."""
    files = sorted(MANIFESTS.glob("*.yaml"))
    return [one for file in files for one in YAML(typ="safe").load_all(file)]


def named(every, kind):
    """The objects of a kind, by namespace and name."""
    return {
        (one["metadata"].get("namespace"), one["metadata"]["name"]): one
        for one in every
        if one["kind"] == kind
    }


def the(every, kind):
    """The only object of a kind."""
    found = list(named(every, kind).values())
    expect(len(found) == 1, f"there are {len(found)} objects of the kind {kind}")
    return found[0]


def container(every):
    containers = the(every, "Deployment")["spec"]["template"]["spec"]["containers"]
    expect(len(containers) == 1, f"the gateway has {len(containers)} containers")
    return containers[0]


def settings(every):
    """The environment of the gateway, without variables from other objects."""
    return {
        one["name"]: one["value"] for one in container(every)["env"] if "value" in one
    }


def kernel_spec(every):
    return json.loads(the(every, "ConfigMap")["data"]["kernel.json"])


def schemas(every, _options):
    """Each document is one that Kubernetes takes, with no field that it does not know."""
    newest = kubernetes_validate.latest_version()
    for one in every:
        for version in (OLDEST, newest):
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                place = ".".join(map(str, error.path))
                name = f"{one['kind']} {one['metadata']['name']}"
                raise StepFailure(f"{name}, {place}: {error.message}") from None


def namespaces(every, _options):
    """Each object is in a namespace that the manifests make, and no two have one name."""
    made = {name for _, name in named(every, "Namespace")}
    seen = set()
    for one in every:
        name = (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        expect(name not in seen, f"{name} is there twice")
        seen.add(name)
        if one["kind"] != "Namespace":
            expect(name[1] in made, f"{name} is in no namespace that is made")


def rights(every, _options):
    """The gateway's account has the role, which is no more than pods of one namespace; kernels have no credentials."""
    accounts, deployment = named(every, "ServiceAccount"), the(every, "Deployment")
    gateway = (
        deployment["metadata"]["namespace"],
        deployment["spec"]["template"]["spec"]["serviceAccountName"],
    )
    expect(gateway in accounts, f"there is no service account {gateway}")
    role, binding = the(every, "Role"), the(every, "RoleBinding")
    expect(not named(every, "ClusterRoleBinding"), "there are rights on the cluster")
    wanted = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": role["metadata"]["name"],
    }
    expect(binding["roleRef"] == wanted, f"the binding is to {binding['roleRef']}")
    same = binding["metadata"]["namespace"] == role["metadata"]["namespace"]
    expect(same, "role and binding are in two namespaces")
    for subject in binding["subjects"]:
        account = (subject["namespace"], subject["name"])
        expect(account == gateway, f"{account} has the gateway's rights")
    resources = [rule["resources"] for rule in role["rules"]]
    expect(resources == [["pods"]], f"the role is about {resources}")
    variables = kernel_spec(every)["env"]
    kernel = (variables["KERNEL_NAMESPACE"], variables["KERNEL_SERVICE_ACCOUNT_NAME"])
    expect(kernel in accounts, f"kernels run as {kernel}, which there is not")
    is_role_there = role["metadata"]["namespace"] == kernel[0]
    expect(is_role_there, f"the gateway may start no kernel in {kernel[0]}")
    expect(kernel[0] != gateway[0], "kernels are in the gateway's namespace")
    mounts = accounts[kernel].get("automountServiceAccountToken")
    expect(mounts is False, "kernels get credentials for the cluster")


def ports(every, _options):
    """Service, Ingress, probes, policies and settings mean ports that the gateway has."""
    pod, service = container(every), the(every, "Service")
    there = {one["name"]: one["containerPort"] for one in pod["ports"]}
    environment = settings(every)
    expect(str(there["http"]) == environment["EG_PORT"], "EG_PORT is another port")
    is_same = str(there["response"]) == environment["EG_RESPONSE_PORT"]
    expect(is_same, "EG_RESPONSE_PORT is another port")
    for port in service["spec"]["ports"]:
        problem = f"the Service leads to {port['targetPort']}"
        expect(port["targetPort"] in there, problem)
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        problem = f"{name} asks no port of the gateway"
        expect(pod[name]["httpGet"]["port"] in there, problem)
    offered = {port["name"] for port in service["spec"]["ports"]}
    for rule in the(every, "Ingress")["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            backend = path["backend"]["service"]
            is_it = backend["name"] == service["metadata"]["name"]
            expect(is_it, f"the Ingress leads to {backend['name']}")
            is_offered = backend["port"]["name"] in offered
            expect(is_offered, f"the Ingress leads to {backend['port']}")
    of_the_system = {53, 443, 6443}
    for name, policy in named(every, "NetworkPolicy").items():
        for rule in policy["spec"].get("ingress", []) + policy["spec"].get(
            "egress", []
        ):
            for port in rule.get("ports", []):
                is_known = port["port"] in {*there.values(), *of_the_system}
                expect(is_known, f"{name} is about port {port['port']}")


def labels(every, _options):
    """A selector of pods selects the gateway's, or all; one of namespaces means one that there is."""
    template = the(every, "Deployment")["spec"]["template"]
    given = template["metadata"]["labels"].items()
    made = {name for _, name in named(every, "Namespace")} | OF_THE_CLUSTER

    def selected(place, selector):
        expect(selector.items() <= given, f"{place} selects no pod by {selector}")

    deployment = the(every, "Deployment")["spec"]["selector"]["matchLabels"]
    selected("the Deployment", deployment)
    selected("the Service", the(every, "Service")["spec"]["selector"])
    for name, policy in named(every, "NetworkPolicy").items():
        spec = policy["spec"]
        selected(name, spec["podSelector"].get("matchLabels", {}))
        peers = [
            peer
            for rule in spec.get("ingress", []) + spec.get("egress", [])
            for peer in rule.get("from", []) + rule.get("to", [])
        ]
        for peer in peers:
            selected(name, peer.get("podSelector", {}).get("matchLabels", {}))
            if "namespaceSelector" in peer:
                namespace = peer["namespaceSelector"]["matchLabels"][BY_NAMESPACE]
                expect(namespace in made, f"{name}: there is no namespace {namespace}")


def files(every, _options):
    """The kernel spec is mounted where it is looked for, under the name that is allowed; no secret is in a file."""
    expect(not named(every, "Secret"), "a Secret is in a file")
    spec = the(every, "Deployment")["spec"]["template"]["spec"]
    volumes = {one["name"]: one["configMap"]["name"] for one in spec["volumes"]}
    place = the(every, "Deployment")["metadata"]["namespace"]
    for mount in container(every)["volumeMounts"]:
        is_there = (place, volumes.get(mount["name"])) in named(every, "ConfigMap")
        expect(is_there, f"there is no ConfigMap for the volume {mount['name']}")
        name = mount["mountPath"].removeprefix("/usr/local/share/jupyter/kernels/")
        environment = settings(every)
        allowed = json.loads(environment["EG_ALLOWED_KERNELS"])
        expect([name] == allowed, f"the kernel spec {name} is not allowed: {allowed}")
        default = environment["EG_DEFAULT_KERNEL_NAME"]
        expect(name == default, f"the default is {default}, not {name}")
    image = container(every)["image"]
    version = image.rpartition(":")[2]
    base = re.search(r"(?m)^FROM (\S+)$", DOCKERFILE.read_text())[1]
    is_same = base == f"elyra/kernel-py:{version}"
    expect(is_same, f"{image} is not of the release of {base}")


def known(every, options):
    """The gateway reads each setting."""
    enterprise = options.tools / "enterprise"
    package = list(enterprise.glob("lib/python3.*/site-packages/enterprise_gateway"))
    expect(package, f"{enterprise} has no Enterprise Gateway")
    files = [file for one in package for file in one.rglob("*.py")]
    source = "".join(file.read_text() for file in files)
    for name in sorted({one["name"] for one in container(every)["env"]} - OF_THE_IMAGE):
        expect(f'"{name}"' in source, f"Enterprise Gateway does not know {name}")
    name = kernel_spec(every)["metadata"]["process_proxy"]["class_name"]
    *module, kind = name.split(".")
    file = package[0].parent / Path(*module).with_suffix(".py")
    is_there = file.is_file() and f"class {kind}(" in file.read_text()
    expect(is_there, f"Enterprise Gateway has no {name}")


@functools.cache
def flags_of(program):
    """The flags of a server of Jupyter's."""
    command = [program, "--help-all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"(?m)^(--\w+\.\w+)=", done.stdout)
    expect(found, f"{program.name} lists no flags:\n{done.stderr}")
    return frozenset(found)


def flags(_every, options):
    """A server of Jupyter's has each flag of the documentation."""
    there = (
        flags_of(options.tools / "jupyter/bin/jupyter-server")
        | flags_of(options.tools / "jupyter/bin/jupyter-kernelgateway")
        | flags_of(options.tools / "enterprise/bin/jupyter-enterprisegateway")
    )
    mentioned = set(re.findall(r"--[A-Z]\w+\.\w+", options.page))
    expect(len(mentioned) >= 8, f"{PAGE.name} has only {len(mentioned)} flags")
    unknown = ", ".join(sorted(mentioned - there))
    expect(not unknown, f"no server of Jupyter's has {unknown}")


def commands(options):
    """The lines of the documentation that begin with `kubectl`."""
    text = re.sub(r"\\\n\s*", "", options.page)
    return [shlex.split(line) for line in re.findall(r"(?m)^kubectl .*$", text)]


def documented(every, options):
    """Commands of the documentation mean what the manifests make."""
    typed = commands(options)
    expect(len(typed) >= 5, f"{PAGE.name} has only {len(typed)} lines with kubectl")
    made = {name for _, name in named(every, "Namespace")}
    secret = container(every)["env"][0]["valueFrom"]["secretKeyRef"]
    token = f"{secret['name']} {secret['key']}"
    makes = reads = False
    for words in typed:
        line = " ".join(words)
        if words[1] == "apply":
            for file in (words[i + 1] for i, word in enumerate(words) if word == "-f"):
                expect((ROOT / file).exists(), f"`{line}`: there is no {file}")
            continue
        place = words[words.index("--namespace") + 1]
        expect(place in made, f"`{line}`: there is no namespace {place}")
        for kind, name in re.findall(r"\b(deployment|service)/([\w-]+)", line):
            is_there = (place, name) in named(every, kind.capitalize())
            expect(is_there, f"`{line}`: there is no {kind} {name}")
        if words[1] == "port-forward":
            local, _, port = words[-1].partition(":")
            offered = [one["port"] for one in the(every, "Service")["spec"]["ports"]]
            expect(int(port) in offered, f"`{line}`: the Service has no port {port}")
            url = f"http://localhost:{local}"
            expect(url in options.page, f"no entry has the URL {url}")
        if words[1:4] == ["create", "secret", "generic"]:
            keys = [one.split("=")[1] for one in words if one.startswith("--from-")]
            is_it = f"{words[4]} {' '.join(keys)}" == token
            expect(is_it, f"`{line}`: the gateway wants {token}")
            makes = True
        if words[1:3] == ["get", "secret"]:
            is_it = words[3] == secret["name"] and f".data.{secret['key']}" in line
            expect(is_it, f"`{line}`: the gateway has {token}")
            reads = True
    expect(makes and reads, f"{PAGE.name} does not make the token, or does not read it")
    proxy = kernel_spec(every)["metadata"]["process_proxy"]
    built = f"docker build --tag {proxy['config']['image_name']} "
    directory = DOCKERFILE.parent.relative_to(ROOT)
    expect(f"{built}{directory}" in options.page, f"nothing says `{built}{directory}`")


CHECKS = [schemas, namespaces, rights, ports, labels, files, known, flags, documented]

ERRORS = [
    # What no check may miss: the check, the object or the page, what is replaced in it and by what, and a word of the
    # complaint.
    (schemas, "Deployment", "readinessProbe", "readinessCheck", "readinessCheck"),
    (schemas, "Deployment", "runAsNonRoot", "runAsNoRoot", "runAsNoRoot"),
    (schemas, "Deployment", '"replicas": 1', '"replicas": "1"', "replicas"),
    (schemas, "Role", '"verbs"', '"verb"', "verb"),
    (schemas, "NetworkPolicy", '"egress"', '"outgress"', "outgress"),
    (schemas, "Service", '"targetPort"', '"target"', "target"),
    (schemas, "Namespace", '"labels"', '"tags"', "tags"),
    (schemas, "LimitRange", '"defaultRequest"', '"defaultRequests"', "defaultRequests"),
    (namespaces, "Service", '"namespace": "e', '"namespace": "f', "no namespace"),
    (rights, "RoleBinding", '"name": "kernel-starter"}', '"name": "k"}', "binding"),
    (rights, "Role", '"pods"', '"pods", "secrets"', "secrets"),
    (rights, "ConfigMap", "ipybox-kernels", "enterprise-gateway", "there is not"),
    (rights, "ServiceAccount", ": false", ": true", "credentials"),
    (ports, "Deployment", '"8877"', '"8878"', "EG_RESPONSE_PORT"),
    (ports, "Service", '"targetPort": "http"', '"targetPort": "web"', "web"),
    (ports, "Ingress", '"port": {"name": "http"}', '"port": {"name": "h"}', "Ingress"),
    (ports, "NetworkPolicy", "8877", "8876", "8876"),
    (labels, "Service", '"enterprise-gateway"}', '"gateway"}', "no pod"),
    (labels, "NetworkPolicy", '"ipybox-kernels"}', '"kernels"}', "no namespace"),
    (files, "Deployment", "kernels/ipybox", "kernels/python", "python"),
    (files, "Deployment", "gateway:3.3.0", "gateway:3.2.3", "release"),
    (known, "Deployment", "EG_LIST_KERNELS", "EG_LISTS_KERNELS", "EG_LISTS_KERNELS"),
    (known, "ConfigMap", ".k8s.", ".k9s.", "k9s"),
    (documented, "Deployment", "gateway-token", "gateway-key", "gateway-key"),
    (documented, "ConfigMap", "kernel:3.3.0", "kernel:3.3.1", "kernel:3.3.1"),
    (flags, "page", "_interval", "_pause", "ws_ping_pause"),
    (documented, "page", "--namespace enterprise-", "--namespace ", "no namespace"),
    (documented, "page", "deployment/enterprise-", "deployment/", "no deployment"),
    (documented, "page", "literal=token", "literal=key", "wants"),
    (
        documented,
        "page",
        "kubernetes/ingress.yaml",
        "kubernetes/in.yaml",
        "no packaging",
    ),
    (documented, "Service", '"port": 8888', '"port": 8889', "no port"),
]


def broken(every, kind, good, bad):
    """The manifests with an error in the first object of a kind in which it can be made."""
    every = copy.deepcopy(every)
    for i, one in enumerate(every):
        text = json.dumps(one)
        if one["kind"] == kind and good in text:
            every[i] = json.loads(text.replace(good, bad))
            return every
    raise StepFailure(f"no {kind} has `{good}`")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tools",
        type=Path,
        required=True,
        help="where tests/tools/install has installed",
    )
    options = parser.parse_args()
    options.tools = options.tools.resolve()
    options.page = PAGE.read_text()
    steps = Steps()
    every = documents()
    for check in CHECKS:
        steps.step(f"{check.__name__}: nothing found", check, every, options)

    for check, kind, good, bad, complaint in ERRORS:

        def find(check=check, kind=kind, good=good, bad=bad, complaint=complaint):
            wrong, seen = every, options
            if kind == "page":
                expect(good in options.page, f"the page has no `{good}`")
                page = options.page.replace(good, bad)
                seen = argparse.Namespace(**vars(options) | {"page": page})
            else:
                wrong = broken(every, kind, good, bad)
            try:
                check(wrong, seen)
            except StepFailure as failure:
                problem = f"complains about something else: {failure}"
                expect(complaint in str(failure), problem)
            else:
                raise StepFailure("finds nothing")

        steps.step(f"{check.__name__}: `{bad}` in the {kind} is found", find)
    steps.end()


if __name__ == "__main__":
    main()
