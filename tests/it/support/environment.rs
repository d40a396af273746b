//! The environment that tests start programs in: the same on every machine, whatever its user has set or installed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::tools::tool;

const SYSTEM: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Programs that tests need and that a machine may have in other directories. Python is found by asking for itself.
const PROGRAMS: [&str; 12] =
    ["bwrap", "cargo", "curl", "git", "node", "npm", "npx", "openssl", "rg", "rustc", "socat", "strip"];

/// A program that tests bring along, and whose absence they test.
const OURS: &str = "srt";

/// How this machine reaches the package registries, which tests cannot know.
const REGISTRIES: [&str; 36] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_PROXY",
    "PIP_TRUSTED_HOST",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_cafile",
    "npm_config_registry",
    "npm_config_userconfig",
];

/// The same in the user's home, and what was downloaded there before.
const IN_HOME: [&str; 5] = [".local/share/uv", ".netrc", ".npm", ".npmrc", ".pip"];
const IN_CONFIG: [&str; 2] = ["pip", "uv"];
const IN_CACHE: [&str; 2] = ["pip", "uv"];

/// All variables of a program that a test starts.
pub(crate) fn environment() -> &'static BTreeMap<String, String> {
    static ENVIRONMENT: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let own = [
            ("HOME", home(&place.join("home"))),
            ("PATH", path(&place.join("bin"))),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/sh".to_owned()),
            ("TERM", "dumb".to_owned()),
        ];
        let found = REGISTRIES.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
        own.into_iter().chain(found).map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

/// The `PATH` of the tests with the programs in `target/test-tools/bin`, `srt` among them.
pub(crate) fn equipped() -> String {
    format!("{}:{}", tool("bin/srt").parent().unwrap().display(), environment()["PATH"])
}

/// A home that is nobody's, kept from one run to the next: matplotlib, for one, takes seconds to fill its cache.
fn home(home: &Path) -> String {
    let users = PathBuf::from(env::var_os("HOME").unwrap_or_default());
    let base = |variable, default| env::var_os(variable).map_or_else(|| users.join(default), PathBuf::from);
    let (config, cache) = (base("XDG_CONFIG_HOME", ".config"), base("XDG_CACHE_HOME", ".cache"));
    let in_home = IN_HOME.map(|name| (users.join(name), home.join(name)));
    let in_config = IN_CONFIG.map(|name| (config.join(name), home.join(".config").join(name)));
    let in_cache = IN_CACHE.map(|name| (cache.join(name), home.join(".cache").join(name)));
    for (from, to) in in_home.into_iter().chain(in_config).chain(in_cache) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if from.exists() {
            link(&from, &to);
        }
    }
    home.to_str().unwrap().to_owned()
}

/// The directories of the system, and before them one with links to the programs that they lack.
fn path(links: &Path) -> String {
    fs::create_dir_all(links).unwrap();
    for program in PROGRAMS {
        let is_missing = !SYSTEM.iter().any(|directory| Path::new(directory).join(program).exists());
        if let Some(found) = is_missing.then(|| find(program)).flatten() {
            link(&found, &links.join(program));
        }
    }
    let python = Command::new("python3").args(["-c", "import sys; print(sys._base_executable)"]).output();
    let python = python.expect("Python is on `PATH`").stdout;
    let python = PathBuf::from(String::from_utf8(python).unwrap().trim());
    for name in ["python", "python3"] {
        link(&python, &links.join(name));
    }
    let system = SYSTEM.iter().map(Path::new).filter(|directory| directory.exists());
    let system = system.map(|directory| {
        if directory.join(OURS).exists() { without_ours(directory, links) } else { directory.to_owned() }
    });
    let path = env::join_paths(std::iter::once(links.to_owned()).chain(system)).unwrap();
    path.into_string().unwrap()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.exists())
}

/// A directory with links to what is in this one, but for the program that tests bring along.
fn without_ours(directory: &Path, links: &Path) -> PathBuf {
    let others = links.join(directory.to_str().unwrap().trim_start_matches('/').replace('/', "-"));
    fs::create_dir_all(&others).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != OURS {
            link(&entry.path(), &others.join(entry.file_name()));
        }
    }
    others
}

/// Links to a file or directory. Another process of the tests may do so at the same time.
fn link(from: &Path, to: &Path) {
    if fs::read_link(to).is_ok_and(|target| target == from) {
        return;
    }
    drop(fs::remove_file(to));
    match symlink(from, to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        done => done.unwrap_or_else(|error| panic!("{}: {error}", to.display())),
    }
}
