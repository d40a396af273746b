//! The hosts that packages come from, as the user has configured uv and pip.
//!
//! An installation in a sandbox reaches these hosts and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use url::Url;

/// PyPI's own: its index, and where that says the files are.
const PYPI: [&str; 2] = ["https://pypi.org", "https://files.pythonhosted.org"];

/// What takes the place of PyPI.
const REPLACING: [&str; 3] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"];
/// What is looked at beside it; several, separated by white space.
const ADDING: [&str; 5] =
    ["UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"];

/// The hosts, as entries of a policy's `allowedDomains`: those of the index, and that of a URL in `requirement`.
pub(super) fn hosts(environment: &BTreeMap<String, String>, requirement: &str) -> Vec<String> {
    let mut urls = Urls::default();
    for file in configurations(environment) {
        // What cannot be read does not configure the tool, either.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if file.extension().is_some_and(|extension| extension == "toml") {
            urls.take_uv(&text);
        } else {
            urls.take_pip(&text);
        }
    }
    let values = |names: &[&str]| {
        let values = names.iter().filter_map(|name| environment.get(*name));
        values.flat_map(|value| value.split_whitespace()).map(str::to_owned).collect::<Vec<_>>()
    };
    urls.replacing.extend(values(&REPLACING));
    urls.adding.extend(values(&ADDING));
    if urls.replacing.is_empty() {
        urls.replacing.extend(PYPI.map(str::to_owned));
    }
    let configured = urls.replacing.iter().chain(&urls.adding).filter_map(|url| host(url));
    // Who asks for the package need not be who configured the rest: no addresses, which would open this machine's own.
    let asked = url_in(requirement).and_then(host).filter(|host| !is_address(host));
    let hosts = configured.chain(asked);
    hosts.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The URL that a requirement is or names after its `@`. What follows in it, such as a marker, is none.
fn url_in(requirement: &str) -> Option<&str> {
    let (before, _) = requirement.split_once("://")?;
    let start = match before.rsplit_once('@') {
        Some((_, scheme)) => {
            requirement.len() - requirement.split_once('@')?.1.len() + scheme.len()
                - scheme.trim_start().len()
        }
        None => 0,
    };
    let url = requirement.get(start..)?.split([' ', ';']).next()?;
    let scheme = url.split_once("://")?.0;
    scheme.chars().all(|each| each.is_ascii_alphanumeric() || each == '+').then_some(url)
}

/// Whether `host:port` names an address, or this machine.
fn is_address(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok() || bare == "localhost" || bare.ends_with(".localhost")
}

/// `host:port` of a URL. `git+https://…` is one, and so is uv's `name=https://…`; a path is none.
fn host(text: &str) -> Option<String> {
    let start = text.find("://")?;
    let scheme = text[..start].rsplit(['+', '=']).next()?;
    let url = Url::parse(&format!("{scheme}{}", &text[start..])).ok()?;
    let port = url.port_or_known_default().or_else(|| (scheme == "ssh").then_some(22))?;
    Some(format!("{}:{port}", url.host_str()?))
}

#[derive(Default)]
struct Urls {
    replacing: Vec<String>,
    adding: Vec<String>,
}

impl Urls {
    /// Takes what `uv.toml` says, at its top level and for `uv pip`.
    fn take_uv(&mut self, text: &str) {
        // A file that is damaged stops uv, which says what is wrong.
        let Ok(document) = text.parse::<toml::Table>() else { return };
        let pip = document.get("pip").and_then(toml::Value::as_table);
        for table in std::iter::once(&document).chain(pip) {
            self.replacing.extend(texts(table.get("index-url")));
            self.adding.extend(texts(table.get("extra-index-url")));
            self.adding.extend(texts(table.get("find-links")));
            for index in table.get("index").and_then(toml::Value::as_array).into_iter().flatten() {
                let is_default = index.get("default").and_then(toml::Value::as_bool).unwrap_or_default();
                let list = if is_default { &mut self.replacing } else { &mut self.adding };
                list.extend(texts(index.get("url")));
            }
        }
    }

    /// Takes what `pip.conf` says; values may go on in indented lines.
    fn take_pip(&mut self, text: &str) {
        let mut list = None;
        for line in text.lines() {
            let value = match line.split_once('=') {
                Some((key, value)) if !line.starts_with(char::is_whitespace) => {
                    list = match key.trim().replace('_', "-").as_str() {
                        "index-url" => Some(true),
                        "extra-index-url" | "find-links" => Some(false),
                        _ => None,
                    };
                    value
                }
                _ => line,
            };
            let list = match list {
                Some(true) => &mut self.replacing,
                Some(false) => &mut self.adding,
                None => continue,
            };
            list.extend(value.split_whitespace().map(str::to_owned));
        }
    }
}

fn texts(value: Option<&toml::Value>) -> Vec<String> {
    match value {
        Some(toml::Value::String(text)) => vec![text.clone()],
        Some(toml::Value::Array(values)) => {
            values.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// The files that uv and pip are configured by. Those of virtual environments are not among them: what has been
/// installed there does not say where more comes from.
fn configurations(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let mut files = ["/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml"].map(PathBuf::from).to_vec();
    files.extend(config.iter().flat_map(|config| [config.join("pip/pip.conf"), config.join("uv/uv.toml")]));
    let in_home = [".pip/pip.conf", "Library/Application Support/pip/pip.conf"];
    files.extend(home.iter().flat_map(|home| in_home.map(|name| home.join(name))));
    files.extend(["PIP_CONFIG_FILE", "UV_CONFIG_FILE"].into_iter().filter_map(variable));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], files: &[(&str, &str)], requirement: &str, expected: &[&str]) {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = home.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let mut environment: BTreeMap<String, String> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment.insert("HOME".to_owned(), home.path().display().to_string());
        assert_eq!(hosts(&environment, requirement), expected, "{pairs:?} {files:?} {requirement}");
    }

    const PYPI: [&str; 2] = ["files.pythonhosted.org:443", "pypi.org:443"];

    #[test]
    fn packages_come_from_pypi_unless_the_user_says_otherwise() {
        check(&[], &[], "requests>=2", &PYPI);
        check(
            &[("PIP_INDEX_URL", "https://user:secret@index.example/simple")],
            &[],
            "x",
            &["index.example:443"],
        );
        check(
            &[("UV_DEFAULT_INDEX", "main=http://index.example:8080/simple")],
            &[],
            "x",
            &["index.example:8080"],
        );
        let both = [&["extra.example:443"][..], &PYPI].concat();
        check(&[("PIP_EXTRA_INDEX_URL", "https://extra.example/simple /a/path")], &[], "x", &both);
    }

    #[test]
    fn files_of_pip_and_uv_are_read() {
        let pip = "[global]\nindex_url = https://a.example/simple\n[install]\nfind-links =\n    https://b.example\n    /wheels\n";
        check(&[], &[(".config/pip/pip.conf", pip)], "x", &["a.example:443", "b.example:443"]);
        let uv = "index-url = 'https://a.example'\n[[index]]\nurl = 'https://b.example'\n[pip]\nextra-index-url = ['https://c.example']\n";
        check(&[], &[(".config/uv/uv.toml", uv)], "x", &["a.example:443", "b.example:443", "c.example:443"]);
        check(&[], &[(".config/uv/uv.toml", "damaged [")], "x", &PYPI);
    }

    #[test]
    fn the_host_of_a_url_is_reached() {
        let with =
            |host: &'static str| [&["files.pythonhosted.org:443", host][..], &["pypi.org:443"]].concat();
        check(&[], &[], "git+https://git.example/a@main", &with("git.example:443"));
        check(&[], &[], "a @ https://host.example/a.whl ; python_version > '3'", &with("host.example:443"));
        check(&[], &[], "evil @ file:///a ; os_name != '+http://127.0.0.1:1/'", &PYPI);
        check(&[], &[], "evil ; os_name != '+http://host.example/'", &PYPI);
        check(&[], &[], "a @ http://127.0.0.1:8000/a.whl", &PYPI);
        check(&[], &[], "a @ http://localhost:8000/a.whl", &PYPI);
        check(&[], &[], "https://[::1]/a.whl", &PYPI);
        check(&[], &[], "git+ssh://git@git.example/a", &with("git.example:22"));
    }
}
