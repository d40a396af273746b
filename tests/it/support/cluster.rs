//! A Kubernetes cluster with agent-sandbox: an API server whose pods are processes of this machine. Linux only.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::{Ipybox, PATIENCE, Place, environment, kernel_python, remote_flags, repository, tool};

const EXTENSIONS: &str = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default";
const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";

/// A running cluster. It ends with all of its pods when this is dropped.
pub(crate) struct Cluster {
    _child: Child,
    _input: ChildStdin,
    home: tempfile::TempDir,
    about: Value,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let home = tempfile::Builder::new().prefix("cluster-").tempdir().unwrap();
        std::fs::create_dir(home.path().join("pods")).unwrap();
        let mut child = Command::new(tool("kubernetes/bin/python"))
            .arg(repository().join("tests/servers/kubernetes"))
            .arg("--kubeconfig")
            .arg(home.path().join("kubeconfig"))
            .arg("--home")
            .arg(home.path().join("pods"))
            .env_clear()
            .env("PATH", &environment()["PATH"])
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let about = serde_json::from_str(&line).unwrap();
        keep_from_others(&home.path().join("kubeconfig"));
        Self { _child: child, _input: input, home, about }
    }

    fn said(&self, key: &str) -> &str {
        self.about[key].as_str().unwrap()
    }

    /// The router of sandboxes.
    pub(crate) fn router(&self) -> &str {
        self.said("router")
    }

    pub(crate) fn router_token(&self) -> &str {
        self.said("router_token")
    }

    /// The file with an administrator's credentials.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// Makes an account that has a role of these rules. Returns a token of it.
    async fn make_account(&self, account: &str, rules: &Value) -> String {
        let core = "/api/v1/namespaces/default/serviceaccounts";
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        let metadata = json!({ "name": account });
        self.create(core, &json!({ "metadata": metadata })).await;
        self.create(&format!("{roles}/roles"), &json!({ "metadata": metadata, "rules": rules })).await;
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account});
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "default"});
        let binding = json!({"metadata": metadata, "roleRef": reference, "subjects": [subject]});
        self.create(&format!("{roles}/rolebindings"), &binding).await;
        let made = self.create(&format!("{core}/{account}/token"), &json!({ "spec": {} })).await;
        made["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A file with the credentials of a new account, which has a role of these rules.
    pub(crate) async fn kubeconfig_of(&self, account: &str, rules: &Value) -> PathBuf {
        let token = self.make_account(account, rules).await;
        let cluster =
            json!({"server": self.said("secure_url"), "certificate-authority": self.said("authority")});
        let context = json!({"cluster": "tests", "user": account, "namespace": "default"});
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": account, "user": { "token": token }}],
            "contexts": [{"name": "tests", "context": context}],
            "current-context": "tests",
        });
        let file = self.home.path().join(account);
        std::fs::write(&file, config.to_string()).unwrap();
        keep_from_others(&file);
        file
    }

    /// A directory with the credentials of a new account, as pods that use it have it.
    pub(crate) async fn mounted_account(&self, account: &str, rules: &Value) -> PathBuf {
        let token = self.make_account(account, rules).await;
        let directory = self.home.path().join(account);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("token"), token).unwrap();
        std::fs::write(directory.join("namespace"), "default").unwrap();
        std::fs::copy(self.said("authority"), directory.join("ca.crt")).unwrap();
        directory
    }

    /// Host and port of the API server, as pods find them in their environment.
    pub(crate) fn service(&self) -> (&str, &str) {
        let address = self.said("secure_url").strip_prefix("https://").unwrap();
        address.trim_end_matches('/').rsplit_once(':').unwrap()
    }

    /// Makes a pool of `replicas` warm sandboxes which run `ipybox pod`, and waits until they are ready.
    pub(crate) async fn make_pool(&self, name: &str, replicas: u64) {
        self.make_pool_with(name, replicas, &[], &json!({})).await;
    }

    /// Makes a pool of one warm sandbox, which has a volume: its pods work in this directory.
    pub(crate) async fn make_pool_with_volume(&self, name: &str, workspace: &Path) {
        let size = json!({"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]});
        let volumes = json!({"volumeClaimTemplates": [{"metadata": {"name": "work"}, "spec": size}]});
        self.make_pool_with(name, 1, &["--workspace", workspace.to_str().unwrap()], &volumes).await;
    }

    /// Makes a pool of one warm sandbox, whose `ipybox pod` has these flags.
    pub(crate) async fn make_pool_with_flags(&self, name: &str, flags: &[&str]) {
        self.make_pool_with(name, 1, flags, &json!({})).await;
    }

    async fn make_pool_with(&self, name: &str, replicas: u64, flags: &[&str], template: &Value) {
        let python = kernel_python();
        let program = env!("CARGO_BIN_EXE_ipybox");
        let command = [program, "pod", "--first-come", "--listen", "$(POD_IP):8888", "--python"];
        let command = [&command[..], &[python.to_str().unwrap()], flags].concat();
        self.make_pool_from(name, replicas, &command, template).await;
        let path = format!("{EXTENSIONS}/sandboxwarmpools/{name}");
        self.until(&path, |pool| pool["status"]["readyReplicas"].as_u64().unwrap_or_default() == replicas)
            .await;
    }

    /// Makes a pool of sandboxes which run this, and are ready when something listens on their port.
    pub(crate) async fn make_pool_of(&self, name: &str, replicas: u64, command: &[&str]) {
        self.make_pool_from(name, replicas, command, &json!({})).await;
    }

    /// The same, with a template that has this too.
    async fn make_pool_from(&self, name: &str, replicas: u64, command: &[&str], template: &Value) {
        let address = json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
        let container = json!({
            "name": "ipybox",
            "image": "none",
            "command": command,
            "env": [address],
            "ports": [{"containerPort": 8888}],
            "readinessProbe": {"tcpSocket": {"port": 8888}, "periodSeconds": 1},
        });
        let pod = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
        let mut spec = json!({"podTemplate": {"spec": pod}, "service": true});
        spec.as_object_mut().unwrap().extend(template.as_object().unwrap().clone());
        let metadata = json!({ "name": name });
        let templates = format!("{EXTENSIONS}/sandboxtemplates");
        self.create(&templates, &json!({"metadata": metadata, "spec": spec})).await;
        let spec = json!({"replicas": replicas, "sandboxTemplateRef": {"name": name}});
        let pools = format!("{EXTENSIONS}/sandboxwarmpools");
        self.create(&pools, &json!({"metadata": metadata, "spec": spec})).await;
    }

    /// The claims that there are.
    pub(crate) async fn claims(&self) -> Vec<Value> {
        let list = self.get(&format!("{EXTENSIONS}/sandboxclaims")).await;
        list["items"].as_array().unwrap().clone()
    }

    /// Deletes a claim.
    pub(crate) async fn delete_claim(&self, name: &str) {
        self.delete(&format!("{EXTENSIONS}/sandboxclaims/{name}")).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        let (status, answer) = self.ask("DELETE", path, &Value::Null).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Waits until the claims fulfil a condition.
    pub(crate) async fn until_claims(&self, is_met: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let path = format!("{EXTENSIONS}/sandboxclaims");
        let list =
            self.until(&path, |list| list["items"].as_array().is_some_and(|claims| is_met(claims))).await;
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until the sandbox of a claim is suspended, and its pod has ended.
    pub(crate) async fn until_suspended(&self, claim: &Value) {
        let name = claim["status"]["sandbox"]["name"].as_str().unwrap();
        let is_suspended = |sandbox: &Value| {
            sandbox["spec"]["operatingMode"] == "Suspended" && sandbox["status"]["podIPs"].is_null()
        };
        self.until(&format!("{SANDBOXES}/{name}"), is_suspended).await;
    }

    /// Waits until an object fulfils a condition.
    pub(crate) async fn until(&self, path: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(path).await;
            if is_met(&object) {
                return object;
            }
            assert!(Instant::now() < deadline, "{object}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn fault(&self, fault: Value) {
        let (status, answer) = self.ask("POST", "/faults", &fault).await;
        assert_eq!(status, 200, "{answer}");
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).await.1
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        let (status, answer) = self.ask("POST", path, object).await;
        assert_eq!(status, 201, "{answer}");
        answer
    }

    async fn ask(&self, method: &str, path: &str, document: &Value) -> (u16, Value) {
        // Another test has done it already, perhaps.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client
            .request(method.parse().unwrap(), format!("{}{path}", self.said("url")))
            .bearer_auth(self.said("token"))
            .header("Content-Type", "application/json");
        let request = if document.is_null() { request } else { request.body(document.to_string()) };
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }
}

/// Has nobody else read a file with credentials.
fn keep_from_others(file: &Path) {
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

impl Place {
    /// ipybox with kernels in sandboxes of a pool, with the credentials in a file.
    pub(crate) fn start_with_pool(
        &self,
        credentials: &Path,
        pool: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Ipybox {
        let flags = [&["--kernel-pool", pool], &remote_flags(flags)[..]].concat();
        let variables = [&[("KUBECONFIG", credentials.to_str().unwrap())], variables].concat();
        Ipybox::spawn(self, &[], None, &flags, &variables)
    }

    /// The same in a pod of the cluster, with this account's directory and these variables.
    pub(crate) fn start_with_pool_inside(
        &self,
        account: &Path,
        pool: &str,
        variables: &[(&str, &str)],
    ) -> Ipybox {
        let mounted = "/run/secrets/kubernetes.io/serviceaccount";
        let launcher = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/run", "--bind"];
        let launcher = [&launcher[..], &[account.to_str().unwrap(), mounted, "--"]].concat();
        Ipybox::spawn(
            self,
            &launcher,
            None,
            &[&["--kernel-pool", pool], &remote_flags(&[])[..]].concat(),
            variables,
        )
    }
}
