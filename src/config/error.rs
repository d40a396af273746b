//! Why settings cannot be used.

use std::io;
use std::path::PathBuf;

use crate::kernels::sandbox::SandboxPolicyError;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workspace is no directory and cannot be made one.
    #[error("use `{path}` as the workspace", path = path.display())]
    Workspace {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Code in the sandbox could write the user's home directory.
    #[error(
        "use `{path}` as the workspace of a sandbox: code in it could write your home directory `{home}`, whose files \
         your shell, your desktop and your tools obey\n\
         hint: name a directory of its own with `--workspace`; `--allow-home-workspace` takes this one all the same",
        path = path.display(), home = home.display()
    )]
    HomeWorkspace {
        /// The workspace.
        path: PathBuf,
        /// The home directory, which is the workspace or in it.
        home: PathBuf,
    },
    /// A program that the host starts is a link to an exposed place.
    #[error(
        "use `{program}` beside a sandbox: it leads to `{place}`, where code in the sandbox can write\n\
         hint: install it outside of that place, or remove its directory from `PATH`",
        program = program.display(), place = place.display()
    )]
    ExposedProgram {
        /// The program.
        program: PathBuf,
        /// The place that it leads to.
        place: PathBuf,
    },
    /// Code in the sandbox could replace the program `ipybox` itself, which the host runs.
    #[error(
        "run `{program}` beside a sandbox: code in it can write `{place}`, and ipybox itself would be replaced\n\
         hint: start ipybox from outside of that place: by `uvx ipybox-rs`, after `npm install -g ipybox`, or by \
         `sh -c 'cd / && exec npx -y ipybox \"$@\"' ipybox --workspace DIR`",
        program = program.display(), place = place.display()
    )]
    ExposedGateway {
        /// The program.
        program: PathBuf,
        /// The place that code can write.
        place: PathBuf,
    },
    /// The directory of the audit log cannot be hidden from code.
    #[error(
        "keep the audit log in `{directory}` beside a sandbox: the directory is hidden from code in it, and has files that \
         code needs\n\
         hint: give the log a directory of its own",
        directory = directory.display()
    )]
    LogDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The notebook, images or a recording would be written where a link of code leads.
    #[error(
        "write to `{directory}` beside a sandbox: code in it can replace `{place}` by a link\n\
         hint: name a directory in the workspace, relative to it, or one that code cannot write",
        directory = directory.display(), place = place.display()
    )]
    ExposedDirectory {
        /// The directory.
        directory: PathBuf,
        /// The place that can be replaced.
        place: PathBuf,
    },
    /// The workspace's state cannot be kept.
    #[error(
        "keep state in `{path}`\n\
         hint: name a directory that you can write to with `--state-dir`",
        path = path.display()
    )]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// srt cannot show a copy of the workspace in its place.
    #[error(
        "have changes wait (`--changes ask`): srt cannot show a copy of the workspace in its place\n\
         hint: `--sandbox-backend bwrap` can"
    )]
    NoCopyInSrt,
    /// The sandbox of a session shows no directory that comes later.
    #[error(
        "give copies of sessions files of their own (`--branch-files`) in a sandbox, which shows nothing that comes later\n\
         hint: with `--changes ask`, bwrap's sandbox has the changes of all copies wait together"
    )]
    BranchFilesInSandbox,
    /// A kernel that ends would take its variables along.
    #[error(
        "end a kernel that nobody uses (`--kernel-idle-timeout`): its variables would be lost\nhint: save them with `--checkpoint`"
    )]
    UnsavedIdle,
    /// There is no home directory to keep state in.
    #[error(
        "find your home directory to keep state in\n\
         hint: name a directory with `--state-dir`"
    )]
    NoHome,
    /// The sandbox's policy cannot be used.
    #[error(transparent)]
    SandboxPolicy(#[from] SandboxPolicyError),
    /// The policy of the workspace opens more than the default, and the user has not allowed that.
    #[error(
        "use `{file}` as the sandbox's policy: the workspace brings it, it opens more than the default, and you have not \
         allowed that: {opens}\n\
         hint: look at it; `ipybox sandbox-policy{flags}` shows and allows it until it changes. Without \
         `--sandbox-workspace-config` the default holds",
        file = file.display()
    )]
    PolicyOpens {
        /// The policy's file.
        file: PathBuf,
        /// The keys that open something, with their values.
        opens: String,
        /// The flags by which the command finds the workspace's state.
        flags: String,
    },
    /// The record of allowed policies cannot be read.
    #[error("read which sandbox policies of the workspace are allowed")]
    Consents(#[source] io::Error),
    /// The sandbox cannot be made on this machine, or its policy cannot be held.
    #[error(transparent)]
    Sandbox(Box<dyn std::error::Error + Send + Sync>),
    /// The program to run in the sandbox is not executable.
    #[error(
        "run `{program}` in the sandbox: it is not an executable file\nhint: give the path of the program `ipybox`",
        program = program.display()
    )]
    Gateway {
        /// The path as given.
        program: PathBuf,
    },
    /// Packages cannot be allowed from this domain in the sandbox.
    #[error("allow packages from `{domain}` in the sandbox")]
    InstallDomain {
        /// The domain as given.
        domain: String,
        /// The fault of the file.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no program to run in the sandbox.
    #[error(
        "find the program `ipybox` to run in the sandbox: it is not on PATH\n\
         hint: install it (`cargo install ipybox`), or give its path by `gateway_program`"
    )]
    NoGateway,
    /// The Jupyter server that is to run kernels cannot be used.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// Agents cannot choose a pool by this name.
    #[error(
        "have agents choose kernels by the name `{name}`: a name has small letters, digits and `-`, begins with a letter, and is \
         not `main`, `new` or `copy`"
    )]
    KernelChoice {
        /// The name as given.
        name: String,
    },
    /// This program knows no clusters.
    #[cfg(not(feature = "kubernetes"))]
    #[error("claim sandboxes of the pool `{pool}`: this program is built without the feature `kubernetes`")]
    NoKubernetes {
        /// The pool.
        pool: String,
    },
    /// Kernels are to run on a Jupyter server, and a setting is only for this machine.
    #[error(
        "run kernels on a Jupyter server with {what}: that is for kernels on this machine\n\
         hint: leave it out; where the kernel runs, the server decides"
    )]
    NotRemote {
        /// The setting.
        what: &'static str,
    },
    /// The kernel is on another machine, where the client's permissions cannot be held.
    #[error(
        "hold the permissions of your MCP client around a kernel that a Jupyter server runs\n\
         hint: let the client run its commands without a sandbox, or start ipybox with `--ignore-client-sandbox`"
    )]
    ClientBeyond,
    /// There is no program that makes a sandbox, in which the client's permissions could be held.
    #[error(
        "hold the permissions of your MCP client around the kernel: that takes a sandbox, and neither `bwrap` nor `srt` is on PATH\n\
         hint: install bubblewrap; `ipybox doctor --sandbox` says how. `--ignore-client-sandbox` gives code all that you may"
    )]
    ClientWithoutSandbox,
    /// Only shell commands may start programs, but they need no approval.
    #[error(
        "require shell commands without their approval\nhint: add `--approve-shell-cmds` (`approve_shell_cmds` in Rust)"
    )]
    EscapeWithoutApproval,
}
