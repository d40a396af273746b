//! The HTTP server that code sends its tool calls to.
//!
//! The code names a registered server, a tool and arguments; everything else (the server's parameters, its
//! secrets, whether the call may run) is decided on this side. The listener is on a loopback address.
//!
//! ```text
//! Endpoint    in a session's process: calls of its kernels alone, with a token for each kernel
//! ToolServer  standing alone: calls; and with another token, its host registers servers and approves calls
//! client      in another process: makes calls, and approves them for the host
//! ```
//!
//! Reasons: `docs/decisions/tool_server.md`.

mod access;
mod announced;
mod answer;
mod approval_channel;
mod batch;
mod body;
mod call;
mod checkpoint_routes;
mod client;
mod endpoint;
mod file_routes;
mod host_routes;
mod listener;
mod living;
mod plan;
mod routes;
mod save;
mod standalone;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use self::client::{ApprovalClient, ApprovalClientError, ToolResult, ToolRunner, ToolRunnerError};
pub(crate) use self::endpoint::ToolEndpoint;
pub(crate) use self::file_routes::FileAnswers;
pub(crate) use self::living::{LivingAnswer, LivingServers, RecordedRequest};
pub use self::standalone::{ToolServer, ToolServerBuilder};

/// The Python modules that generated code imports, by name; the others are imported by the first.
pub(crate) const RUNTIME: [(&str, &str); 11] = [
    ("ipybox_runtime", include_str!("ipybox_runtime.py")),
    ("ipybox_modules", include_str!("ipybox_modules.py")),
    ("ipybox_results", include_str!("ipybox_results.py")),
    ("ipybox_literals", include_str!("ipybox_literals.py")),
    ("ipybox_resources", include_str!("ipybox_resources.py")),
    ("ipybox_templates", include_str!("ipybox_templates.py")),
    ("ipybox_search", include_str!("ipybox_search.py")),
    ("ipybox_batch", include_str!("ipybox_batch.py")),
    ("ipybox_arguments", include_str!("ipybox_arguments.py")),
    ("ipybox_actions", include_str!("ipybox_actions.py")),
    ("ipybox_gathering", include_str!("ipybox_gathering.py")),
];

/// The modules of `mcptools` that are ipybox's own, by name: in the place of each, code finds a function.
const OWN: [(&str, &str); 3] = [
    ("search", include_str!("mcptools_search.py")),
    ("batch", include_str!("mcptools_batch.py")),
    ("save", include_str!("mcptools_save.py")),
];

/// Those of [`RUNTIME`] that generated code needs outside of ipybox. The others ask ipybox itself.
const FOR_SCRIPTS: [&str; 8] = [
    "ipybox_runtime",
    "ipybox_modules",
    "ipybox_results",
    "ipybox_literals",
    "ipybox_resources",
    "ipybox_templates",
    "ipybox_batch",
    "ipybox_arguments",
];

/// The modules that generated code imports outside of ipybox: paths and texts.
pub(crate) fn modules_for_scripts() -> impl Iterator<Item = (String, &'static str)> {
    let runtime = RUNTIME.into_iter().filter(|(name, _)| FOR_SCRIPTS.contains(name));
    let own = OWN.into_iter().filter(|(name, _)| *name == "batch");
    let runtime = runtime.map(|(name, text)| (format!("{name}.py"), text));
    runtime.chain(own.map(|(name, text)| (format!("mcptools/{name}.py"), text)))
}

/// Why the tool server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host is not this machine's loopback interface.
    #[error(
        "listen on `{host}`: the tool server is for this machine only\n\
         hint: use `localhost`, `127.0.0.1` or `::1`"
    )]
    NotLoopback {
        /// The host that was asked for.
        host: String,
    },
    /// The host has no address.
    #[error("find the address of the tool server host `{host}`")]
    Resolve {
        /// The host that was asked for.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The port is taken, say.
    #[error("listen on {address} for tool calls")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A given token is invalid.
    #[error("use the given {which} token: it must be at least 16 visible ASCII characters")]
    Token {
        /// `caller` or `host`.
        which: &'static str,
    },
    /// Both tokens are the same, so that code could approve its own calls.
    #[error("use one token for callers and the host: they must differ")]
    SameTokens,
}

/// The directory in which [`write_runtime`] puts the Python modules: for `PYTHONPATH`.
pub(crate) fn runtime_directory(private_directory: &Path) -> PathBuf {
    private_directory.join("runtime")
}

/// The directory in which [`write_runtime`] puts ipybox's own part of `mcptools`: the last one of `PYTHONPATH`, so that the
/// tools of a server called `search`, `batch` or `save` are found.
pub(crate) fn own_packages_directory(private_directory: &Path) -> PathBuf {
    private_directory.join("packages")
}

/// The packages that code imports from the workspace: generated ones, and those that agents write: parsers
/// for the tools' results, and saved actions.
pub(crate) const IMPORTABLE: [&str; 3] = ["mcptools", "mcpparse", "gentools"];

/// Writes the modules that generated code imports, and makes the workspace's packages importable from every
/// directory.
pub(crate) fn write_runtime(private_directory: &Path, workspace: &Path) -> io::Result<()> {
    let directory = runtime_directory(private_directory);
    std::fs::create_dir_all(&directory)?;
    for (name, text) in RUNTIME {
        write_if_new(&directory.join(format!("{name}.py")), text)?;
    }
    let own = own_packages_directory(private_directory).join("mcptools");
    std::fs::create_dir_all(&own)?;
    for (name, text) in OWN {
        write_if_new(&own.join(format!("{name}.py")), text)?;
    }
    // Namespace packages: the workspace itself must not be on the path, where its files would hide modules.
    for name in IMPORTABLE {
        match std::os::unix::fs::symlink(workspace.join(name), directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes a file that has another text: a kernel of a branch's origin may be reading it.
fn write_if_new(file: &Path, text: &str) -> io::Result<()> {
    match std::fs::read(file) {
        Ok(written) if written == text.as_bytes() => Ok(()),
        _ => std::fs::write(file, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracebacks_leave_out_the_frames_of_these_modules() {
        let mut names = RUNTIME.map(|(name, _)| format!("    {name:?},\n"));
        names.sort();
        let frames = include_str!("../../kernels/kernel/ipybox_frames.py");
        assert!(frames.contains(&format!("\nRUNTIME = (\n{})\n", names.concat())));
    }
}
