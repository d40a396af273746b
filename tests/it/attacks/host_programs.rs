//! Programs of the host beside a sandbox: they take neither code nor configuration from where code in it writes.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::host::{Backend, Host, User};
use super::nothing_gets_through_by;
use crate::support::{Ipybox, equipped};

/// Programs that the host starts, or that those start.
const PROGRAMS: [&str; 14] = [
    "srt", "bwrap", "socat", "rg", "which", "node", "npm", "npx", "uv", "uvx", "git", "sh", "bash", "python3",
];

/// How long a server may take to start, in seconds: machines are slow at times.
pub(super) const LIMIT: u64 = 280;

/// Code that plants whatever a server might take from its working directory.
pub(super) const PLANT: &str = r##"
import os, stat
ran = "import os; open(os.path.join({outside!r}, 'ran-{name}'), 'w').close()\n"
for name in ["json", "honest", "mcp", "sitecustomize", "usercustomize", "asyncio", "typing"]:
    open(name + ".py", "w").write(ran.format(outside=outside, name=name))
os.makedirs("node_modules/.bin", exist_ok=True)
os.makedirs("node_modules/planted-server", exist_ok=True)
open("node_modules/planted-server/package.json", "w").write('{"name": "planted-server", "version": "1.0.0", "bin": "run"}')
for path in ["node_modules/.bin/planted-server", "node_modules/planted-server/run", "tool"]:
    open(path, "w").write(f"#!/bin/sh\n: > {outside}/ran-{os.path.basename(path)}\n")
    os.chmod(path, 0o755)
open("package.json", "w").write('{"name": "here", "version": "1.0.0"}')
for name in [".npmrc", "uv.toml", "bunfig.toml"]:
    try: open(name, "w").write(f"script-shell={os.getcwd()}/tool\n")
    except OSError: pass
"##;

/// Puts programs into the workspace that leave a trace if the host runs them.
pub(super) fn plant_programs(host: &Host) {
    // Code cannot make it.
    host.make("workspace/node_modules/.bin");
    let directory = host.workspace().join("bin");
    std::fs::create_dir(&directory).unwrap();
    for name in PROGRAMS {
        let script = format!("#!/bin/sh\n: > {}/ran-{name}\nexit 1\n", host.outside().display());
        std::fs::write(directory.join(name), script).unwrap();
        std::fs::set_permissions(directory.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let shell = format!("script-shell={}\n", directory.join("sh").display());
    std::fs::write(host.workspace().join(".npmrc"), shell).unwrap();
}

/// The test server as a module that lies outside of the workspace.
pub(super) fn honest(host: &Host) -> Value {
    let site = host.workspace().with_file_name("site");
    std::fs::create_dir_all(&site).unwrap();
    let mut server = host.probe();
    std::fs::copy(server["args"][0].as_str().unwrap(), site.join("honest.py")).unwrap();
    let others = server["env"]["PYTHONPATH"].as_str().unwrap_or_default();
    server["env"] = json!({"PYTHONPATH": format!("{}:{others}", site.display())});
    server["args"] = json!(["-m", "honest", "--transport", "stdio"]);
    server["timeout"] = json!(LIMIT);
    server
}

/// The planted programs and modules that have run on the host since the last look.
pub(super) fn ran(host: &Host, after: &str) -> Vec<String> {
    let entries = std::fs::read_dir(host.outside()).unwrap().map(|entry| entry.unwrap().path());
    let traces: Vec<_> = entries.filter(|path| path.to_string_lossy().contains("/ran-")).collect();
    traces.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    traces.iter().map(|path| format!("{after}: {}", path.display())).collect()
}

pub(super) async fn calls(ipybox: &mut Ipybox, name: &str) -> Option<String> {
    let code = format!("from mcptools.{name} import echo\necho.run(echo.Params(text='fine'))");
    let answer = ipybox.cell(&code).await;
    (answer.is_error || answer.text != "'fine'").then(|| format!("`{name}` does not answer: {}", answer.text))
}

/// What a server must not be started with.
fn refused(host: &Host) -> Vec<(Value, &'static str)> {
    let workspace = host.workspace();
    let inside = |name: &str| workspace.join(name);
    let link = workspace.with_file_name("site").join("link");
    symlink(inside("tool"), &link).unwrap();
    let wrapper = workspace.with_file_name("site").join("wrapper");
    std::fs::write(&wrapper, format!("#!{}\n", inside("tool").display())).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (can_write, relative) = ("code in the sandbox can write", "a relative path");
    vec![
        (json!({"command": inside("tool")}), can_write),
        (json!({"command": link}), can_write),
        (json!({"command": wrapper}), can_write),
        (json!({"command": "./tool"}), relative),
        (json!({"command": "python3", "args": [inside("server.py")]}), can_write),
        (json!({"command": "python3", "args": ["./server.py"]}), relative),
        (json!({"command": "python3", "args": [workspace]}), can_write),
        (json!({"command": "python3", "args": ["-m", "honest"], "cwd": "."}), can_write),
        (json!({"command": "python3", "args": ["-m", "honest"], "cwd": inside("images")}), can_write),
        (
            json!({"command": "python3", "args": ["-m", "honest"], "env": {"PYTHONPATH": workspace}}),
            can_write,
        ),
        (json!({"command": "python3", "args": ["-m", "honest", "--config=${workspace}/c.toml"]}), can_write),
        (json!({"command": "node", "args": ["${workspace}"]}), can_write),
        (json!({"command": "npx", "args": ["-y", "--prefix", "${workspace}", "server"]}), can_write),
        (json!({"command": "uvx", "args": ["--from", "${workspace}", "server"]}), can_write),
        (json!({"command": "uv", "args": ["--directory", "${workspace}", "run", "server.py"]}), can_write),
        (json!({"command": "sh", "args": ["-c", "cd ${workspace} && exec ./tool"]}), can_write),
        (json!({"command": "env", "args": ["-C", "${workspace}", "npx", "server"]}), can_write),
        (json!({"command": "mcp-server-filesystem", "args": ["."]}), relative),
        (json!({"command": "python3", "args": ["json.py"]}), relative),
        (json!({"command": "python3", "args": ["-m", "honest"], "env": {"CONFIG": "json.py"}}), relative),
    ]
}

async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    plant_programs(&host);
    let honest = honest(&host);
    let bin = host.workspace().join("bin");
    let mut ipybox = host.start_on(&format!("{}:bin::{}", bin.display(), equipped()));
    ipybox.initialize().await;
    let mut through = Vec::new();
    ipybox.register("honest", honest).await.ok();
    ipybox.cell(&format!("outside = {:?}\n{PLANT}", host.outside())).await.ok();
    ipybox.reset().await;
    through.extend(calls(&mut ipybox, "honest").await);
    through.extend(ran(&host, "a server in Python"));

    let mut by_npx = host.probe();
    let words = [&by_npx["command"], &by_npx["args"][0]].map(|word| word.as_str().unwrap().to_owned());
    by_npx["args"] = json!(["--offline", "-c", format!("exec {} --transport stdio", words.join(" "))]);
    by_npx["command"] = json!("npx");
    by_npx["timeout"] = json!(LIMIT);
    ipybox.register("by_npx", by_npx).await.ok();
    ipybox.reset().await;
    through.extend(calls(&mut ipybox, "by_npx").await);
    let planted = json!({"command": "npx", "args": ["-y", "--offline", "planted-server"], "timeout": LIMIT});
    ipybox.register("planted", planted).await;
    through.extend(ran(&host, "a server by npx"));

    for (parameters, expected) in refused(&host) {
        let answer = ipybox.register("refused", parameters.clone()).await;
        if !answer.is_error || !answer.text.contains(expected) {
            through.push(format!("{parameters} is not refused: {}", answer.text));
        }
    }
    through.extend(ran(&host, "what is refused"));
    let mut trusted = host.probe();
    let server = host.workspace().join("trusted.py");
    std::fs::copy(trusted["args"][0].as_str().unwrap(), &server).unwrap();
    trusted["args"][0] = json!(server);
    trusted["trust_workspace"] = json!(true);
    trusted["timeout"] = json!(LIMIT);
    ipybox.register("trusted", trusted).await.ok();
    through.extend(calls(&mut ipybox, "trusted").await);
    ipybox.stop().await;
    through.extend(ran(&host, "at the end"));
    if through.is_empty() { String::new() } else { format!("{backend:?} {user:?}:\n{}", through.join("\n")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_of_the_host_take_nothing_from_the_workspace() {
    nothing_gets_through_by(everything).await;
}
