//! The options that the builders of [`CodeExecutor`](super::CodeExecutor) and [`KernelClient`](super::KernelClient) share.

/// Implements the options for a builder whose method `kernel` returns the `KernelClientBuilder` in it.
macro_rules! kernel_options {
    ($builder:ty) => {
        impl $builder {
            /// The workspace: the kernel's working directory, created if missing, with `images` and the `mcptools` of an
            /// executor. Default: the current directory.
            pub fn working_dir(mut self, directory: impl Into<PathBuf>) -> Self {
                self.kernel().settings.workspace = directory.into();
                self
            }

            /// The interpreter that runs the kernel, or its virtual environment. Packages are installed into it. Default:
            /// an environment made for the workspace.
            pub fn python(mut self, python: impl Into<PathBuf>) -> Self {
                self.kernel().settings.kernel.python = Some(python.into());
                self
            }

            /// The directory for state that outlives the session: managed environments, registered servers, standing answers.
            /// Default: `ipybox` in the platform's data directory.
            pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
                self.kernel().settings.state_dir = Some(directory.into());
                self
            }

            /// Variables for the kernel, which inherits nothing but what every program needs (`PATH`, `HOME`, the
            /// locale, certificates). Variables in `${NAME}` placeholders of MCP servers need not be given to it.
            pub fn kernel_env<K: Into<String>, V: Into<String>>(
                mut self,
                variables: impl IntoIterator<Item = (K, V)>,
            ) -> Self {
                let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
                self.kernel().settings.kernel.env = variables.collect();
                self
            }

            /// The directory for images; default: `images` in the workspace.
            pub fn images_dir(mut self, directory: impl Into<PathBuf>) -> Self {
                self.kernel().settings.images_dir = directory.into();
                self
            }

            /// The time that a kernel may take to start, its environment not counted; default: 60 seconds.
            pub fn kernel_init_timeout(mut self, timeout: Duration) -> Self {
                self.kernel().settings.kernel.init_timeout = timeout;
                self
            }

            /// The memory, processor time and processes of the kernel and all that it starts together; Linux only. One that
            /// nothing on this system holds is an error at the start. Default: none; in a sandbox 3/4 of the machine's memory,
            /// and 1024 processes and threads.
            pub fn limits(mut self, limits: SessionLimits) -> Self {
                self.kernel().settings.limits = limits;
                self
            }

            /// The memory that states of the kernel may take by which code can be undone, in bytes; Linux only. Each takes some
            /// 4 MB, and what the kernel changes afterwards. Default: 0, no states.
            pub fn undo_memory(mut self, bytes: u64) -> Self {
                self.kernel().settings.undo_memory = bytes;
                self
            }

            /// Whether every kernel starts from scratch; default: `false`. On Linux, kernels after a reset are else forked from a
            /// process that has run no code, and share its layout of memory and its hash seed.
            pub fn cold_start(mut self, is_cold: bool) -> Self {
                self.kernel().settings.kernel.cold_start = is_cold;
                self
            }

            /// Whether each copy of this session works in a copy of the workspace, whose changes wait until a user has
            /// applied them by `ipybox changes`. Absolute paths still lead to the workspace. Excludes a
            /// [`sandbox`](Self::sandbox). Default: `false`, it shares the workspace.
            pub fn branch_files(mut self, are_own: bool) -> Self {
                self.kernel().settings.branch_files = are_own;
                self
            }

            /// Whether the kernel runs in a sandbox; default: `false`. Without [`sandbox_config`](Self::sandbox_config)
            /// it can read all but secrets, write its workspace and nothing else, and has no network; tools are called as
            /// ever.
            ///
            /// The program `ipybox`, of the version of this crate, runs inside: see
            /// [`gateway_program`](Self::gateway_program).
            pub fn sandbox(mut self, is_sandboxed: bool) -> Self {
                let sandbox = &mut self.kernel().settings.sandbox;
                *sandbox = is_sandboxed.then(|| sandbox.take().unwrap_or_default());
                self
            }

            /// The policy for code in the sandbox: a file in the settings format of sandbox-runtime, relative to the
            /// workspace. Asks for a [`sandbox`](Self::sandbox) too.
            pub fn sandbox_config(mut self, file: impl Into<PathBuf>) -> Self {
                self.kernel().sandbox_settings().config = Some(file.into());
                self
            }

            /// Whether the workspace may be the user's home directory, or contain it, in a sandbox. Code could then
            /// write files that shells, editors and the desktop act upon. Asks for a [`sandbox`](Self::sandbox) too.
            /// Default: `false`.
            pub fn allow_home_workspace(mut self, is_allowed: bool) -> Self {
                self.kernel().sandbox_settings().allow_home_workspace = is_allowed;
                self
            }

            /// Whether `sandbox-config.json` in the workspace is added to the default policy, if it is there. What it opens
            /// beyond the default is refused until the user has allowed it by `ipybox sandbox-policy`. Code in a sandbox can
            /// never write it. Asks for a [`sandbox`](Self::sandbox) too. Default: `false`, because a workspace may come
            /// from a stranger.
            pub fn sandbox_workspace_config(mut self, is_taken: bool) -> Self {
                self.kernel().sandbox_settings().workspace_config = is_taken;
                self
            }

            /// The program that makes the sandbox; default: [`SandboxBackend::Srt`]. Asks for a
            /// [`sandbox`](Self::sandbox) too.
            pub fn sandbox_backend(mut self, backend: SandboxBackend) -> Self {
                self.kernel().sandbox_settings().backend = backend;
                self
            }

            /// When what code writes in the workspace is there; default: [`ChangesMode::Write`]. Asks for a
            /// [`sandbox`](Self::sandbox) too.
            pub fn changes(mut self, mode: ChangesMode) -> Self {
                self.kernel().sandbox_settings().changes = mode;
                self
            }

            /// Domains that packages may be installed from in the sandbox, beside those that uv and pip are configured
            /// for: `example.com`, `*.example.com`, with a port or without. Asks for a [`sandbox`](Self::sandbox) too.
            /// Default: none.
            pub fn sandbox_install_domains<D: Into<String>>(
                mut self,
                domains: impl IntoIterator<Item = D>,
            ) -> Self {
                self.kernel().sandbox_settings().install_domains =
                    domains.into_iter().map(Into::into).collect();
                self
            }

            /// The program `ipybox` to run in the sandbox, of the version of this crate; default: `ipybox` on `PATH`. Has
            /// no effect without a sandbox.
            pub fn gateway_program(mut self, program: impl Into<PathBuf>) -> Self {
                self.kernel().gateway_program = Some(program.into());
                self
            }

            /// Runs the kernel on the Jupyter Server, Kernel Gateway or Enterprise Gateway at this URL, which includes its
            /// base path. Default: the kernel runs on this machine. Excludes a sandbox and an interpreter of this machine.
            pub fn kernel_gateway_url(mut self, url: impl Into<String>) -> Self {
                self.kernel().gateway().url = url.into();
                self
            }

            /// Runs the kernel on a Jupyter server of the JupyterHub at this URL, which starts it if it does not run. Default: none.
            /// Excludes a [`kernel_gateway_url`](Self::kernel_gateway_url), whose headers, certificates and kernel spec are
            /// options here too.
            pub fn kernel_hub_url(mut self, url: impl Into<String>) -> Self {
                self.kernel().hub_url = Some(url.into());
                self
            }

            /// The token of the Hub's user, or of a service.
            pub fn kernel_hub_token(mut self, token: impl Into<String>) -> Self {
                self.kernel().gateway().token = Some(token.into());
                self
            }

            /// The named server at the Hub; default: the user's default server.
            pub fn kernel_hub_server(mut self, name: impl Into<String>) -> Self {
                self.kernel().hub.server = Some(name.into());
                self
            }

            /// The user of the Hub whose server it is; default: the token's.
            pub fn kernel_hub_user(mut self, name: impl Into<String>) -> Self {
                self.kernel().hub.user = Some(name.into());
                self
            }

            /// Options for the start of that server, as the Hub's spawner takes them; default: those of its last start.
            pub fn kernel_hub_options(mut self, options: serde_json::Map<String, serde_json::Value>) -> Self {
                self.kernel().hub.options = options;
                self
            }

            /// Runs the kernel in the pod at this URL, where `ipybox pod` waits for a session. Default: none. Excludes a
            /// [`kernel_gateway_url`](Self::kernel_gateway_url), whose headers and certificates are options here too.
            pub fn kernel_pod_url(mut self, url: impl Into<String>) -> Self {
                self.kernel().pod_url = Some(url.into());
                self
            }

            /// The token of that pod; default: it has none.
            pub fn kernel_pod_token(mut self, token: impl Into<String>) -> Self {
                self.kernel().gateway().pod_token = Some(token.into());
                self
            }

            /// Runs the kernel in a sandbox that is claimed from this warm pool of a Kubernetes cluster with agent-sandbox, whose
            /// credentials are found as `kubectl` finds them, or are those of the service account of our pod. Default: none.
            /// Excludes a [`kernel_gateway_url`](Self::kernel_gateway_url), whose headers and certificates are options here too.
            pub fn kernel_pool(mut self, name: impl Into<String>) -> Self {
                self.kernel().pool_name = Some(name.into());
                self
            }

            /// The namespace of the pool; default: that of the credentials. This and the following options have no effect without
            /// a [`kernel_pool`](Self::kernel_pool).
            pub fn kernel_namespace(mut self, name: impl Into<String>) -> Self {
                self.kernel().pool().namespace = Some(name.into());
                self
            }

            /// The port on which `ipybox pod` listens in sandboxes of the pool; default: 8888.
            pub fn kernel_pool_port(mut self, port: u16) -> Self {
                self.kernel().pool().port = port;
                self
            }

            /// Reaches sandboxes of the pool through the router at this URL; default: at the addresses of their pods.
            pub fn kernel_router_url(mut self, url: impl Into<String>) -> Self {
                self.kernel().router_url = Some(url.into());
                self
            }

            /// The token of that router.
            pub fn kernel_router_token(mut self, token: impl Into<String>) -> Self {
                self.kernel().gateway().token = Some(token.into());
                self
            }

            /// The time that a claimed sandbox may take to be ready; default: 10 minutes.
            pub fn kernel_claim_timeout(mut self, timeout: Duration) -> Self {
                self.kernel().pool().timeout = timeout;
                self
            }

            /// The time after which the cluster deletes the sandbox of a session that was killed; default: 5 minutes.
            pub fn kernel_claim_lease(mut self, lease: Duration) -> Self {
                self.kernel().pool().lease = lease;
                self
            }

            /// The token of that server, or with a blank in it (`Bearer …`) the whole value of the header
            /// `Authorization`. Has no effect without a [`kernel_gateway_url`](Self::kernel_gateway_url).
            pub fn kernel_gateway_token(mut self, token: impl Into<String>) -> Self {
                self.kernel().gateway().token = Some(token.into());
                self
            }

            /// Headers of each request to that server, of the connections to its kernels too, as proxies before it want
            /// them. Their values are secrets. `Authorization` may be one of them, in place of a
            /// [`kernel_gateway_token`](Self::kernel_gateway_token). Have no effect without a
            /// [`kernel_gateway_url`](Self::kernel_gateway_url).
            pub fn kernel_gateway_headers<K: Into<String>, V: Into<String>>(
                mut self,
                headers: impl IntoIterator<Item = (K, V)>,
            ) -> Self {
                let header = |(name, value): (K, V)| RemoteHeader {
                    name: name.into(),
                    value: RemoteHeaderValue::Text(value.into()),
                };
                self.kernel().gateway().headers = headers.into_iter().map(header).collect();
                self
            }

            /// A file with certificates in PEM to trust beside the system's. Has no effect without a
            /// [`kernel_gateway_url`](Self::kernel_gateway_url).
            pub fn kernel_gateway_ca(mut self, file: impl Into<PathBuf>) -> Self {
                self.kernel().gateway().ca = Some(file.into());
                self
            }

            /// The kernel spec to start there; default: the server's. Has no effect without a
            /// [`kernel_gateway_url`](Self::kernel_gateway_url).
            pub fn kernel_name(mut self, name: impl Into<String>) -> Self {
                self.kernel().gateway().kernel_name = Some(name.into());
                self
            }
        }
    };
}

pub(super) use kernel_options;
