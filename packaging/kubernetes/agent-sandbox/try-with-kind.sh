#!/bin/sh
# Tries everything in a new cluster on this machine, and removes that at the end: a session in one pod, its kernel in a sandbox.
#
# Needs docker, kind, kubectl, the image `ipyboxrs/ipybox:0.1.0` (or another one in $IPYBOX_IMAGE), and the release of agent-sandbox
# in $AGENT_SANDBOX_RELEASE: one that serves `v1beta1`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ipybox_image=${IPYBOX_IMAGE:-ipyboxrs/ipybox:0.1.0}
pod_image=registry.example.com/ipybox-pod:1
release=${AGENT_SANDBOX_RELEASE:?name a release of agent-sandbox that serves v1beta1}
downloads="https://github.com/kubernetes-sigs/agent-sandbox/releases/download/$release"
cluster="ipybox-try"
namespace="ipybox-sandboxes"
place=$(mktemp -d)
export KUBECONFIG="$place/kubeconfig"

end() {
    kind delete cluster --name "$cluster"
    rm -rf "$place"
}
trap end EXIT

docker build --tag "$pod_image" --build-arg "IPYBOX_IMAGE=$ipybox_image" "$here"
kind create cluster --name "$cluster"
kind load docker-image --name "$cluster" "$pod_image" "$ipybox_image"
kubectl apply -f "$downloads/manifest.yaml" -f "$downloads/extensions.yaml"
kubectl wait --for=condition=Available deployment --all --namespace agent-sandbox-system --timeout=300s
kubectl apply -f "$here/template.yaml" -f "$here/pool.yaml" -f "$here/role.yaml"
kubectl wait --for=jsonpath='{.status.readyReplicas}'=3 sandboxwarmpool/ipybox --namespace "$namespace" --timeout=300s

kubectl apply -f - <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: try
  namespace: $namespace
  labels: { app.kubernetes.io/name: ipybox }
spec:
  serviceAccountName: ipybox
  securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: RuntimeDefault } }
  containers:
    - name: ipybox
      image: $ipybox_image
      command: [sleep, infinity]
      env:
        - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
        - { name: POD_UID, valueFrom: { fieldRef: { fieldPath: metadata.uid } } }
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
YAML
kubectl wait --for=condition=Ready pod/try --namespace "$namespace" --timeout=300s

# A client that asks for one cell, and waits for the answer before its input ends.
requests() {
    client='{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "try", "version": "1"}}'
    cell='{"name": "execute_ipython_cell", "arguments": {"code": "import platform; platform.node()"}}'
    printf '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": %s}\n' "$client"
    printf '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    printf '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": %s}\n' "$cell"
    until grep -q '"id":2' "$place/answers"; do sleep 1; done
}

: > "$place/answers"
requests | kubectl exec -i try --namespace "$namespace" -- ipybox --workspace /tmp/work --state-dir /tmp/state \
    --kernel-pool ipybox > "$place/answers"
cat "$place/answers"
left=$(kubectl get sandboxclaims --namespace "$namespace" --output name)
if [ -n "$left" ]; then
    echo "claims are left: $left" >&2
    exit 1
fi
