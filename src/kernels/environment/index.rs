//! The hosts that packages come from, as the user has configured uv and pip.
//!
//! An installation in a sandbox reaches these hosts and no others. The requirement is untrusted: a URL in it
//! opens no host, since its build could send there everything that it can read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use url::Url;

use crate::ground::files::small;

/// PyPI's own: its index, and where that says the files are.
const PYPI: [&str; 2] = ["https://pypi.org", "https://files.pythonhosted.org"];

/// Variables that replace PyPI.
const REPLACING: [&str; 3] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"];
/// Variables with further indexes; several, separated by white space.
const ADDING: [&str; 5] =
    ["UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"];

/// The hosts, as entries of a policy's `allowedDomains`.
pub(super) fn hosts(environment: &BTreeMap<String, String>) -> Vec<String> {
    let mut urls = Urls::default();
    for file in configurations(environment) {
        // An unreadable file does not configure the tool, either.
        let Ok(text) = small::read_text(&file, small::BY_HAND) else { continue };
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
    configured.collect::<BTreeSet<_>>().into_iter().collect()
}

/// `host:port` of the URL that a requirement is or names, if it does.
pub(super) fn host_of(requirement: &str) -> Option<String> {
    url_in(requirement).and_then(host)
}

/// The URL that a requirement is or names after its `@`, without text after it, such as a marker.
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
    /// Reads the indexes in `uv.toml`, at its top level and for `uv pip`.
    fn take_uv(&mut self, text: &str) {
        // uv stops at a damaged file, and reports it.
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

    /// Reads the indexes in `pip.conf`; values may go on in indented lines.
    fn take_pip(&mut self, text: &str) {
        let mut list = None;
        for line in text.lines() {
            let value = match line.split_once(['=', ':']) {
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

/// The configuration files of uv and pip, without those of virtual environments: installed packages must not
/// choose where more come from.
pub(super) fn configurations(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let mut files = ["/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml"].map(PathBuf::from).to_vec();
    files.extend(config.iter().flat_map(|config| [config.join("pip/pip.conf"), config.join("uv/uv.toml")]));
    let in_home = [".pip/pip.conf", "Library/Application Support/pip/pip.conf"];
    files.extend(home.iter().flat_map(|home| in_home.map(|name| home.join(name))));
    files.extend(["PIP_CONFIG_FILE", "UV_CONFIG_FILE"].into_iter().filter_map(variable));
    // By these variables the tools read no files.
    let is_of_uv = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "toml");
    let has_uv =
        variable("UV_NO_CONFIG").is_none_or(|value| value == Path::new("0") || value == Path::new("false"));
    let has_pip = variable("PIP_CONFIG_FILE").is_none_or(|file| file != Path::new("/dev/null"));
    files.retain(|file| if is_of_uv(file) { has_uv } else { has_pip });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], files: &[(&str, &str)], expected: &[&str]) {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = home.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let mut environment: BTreeMap<String, String> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment.insert("HOME".to_owned(), home.path().display().to_string());
        assert_eq!(hosts(&environment), expected, "{pairs:?} {files:?}");
    }

    const PYPI: [&str; 2] = ["files.pythonhosted.org:443", "pypi.org:443"];

    #[test]
    fn packages_come_from_pypi_unless_the_user_says_otherwise() {
        check(&[], &[], &PYPI);
        check(&[("PIP_INDEX_URL", "https://user:secret@index.example/simple")], &[], &["index.example:443"]);
        check(&[("UV_DEFAULT_INDEX", "main=http://index.example:8080/simple")], &[], &["index.example:8080"]);
        let both = [&["extra.example:443"][..], &PYPI].concat();
        check(&[("PIP_EXTRA_INDEX_URL", "https://extra.example/simple /a/path")], &[], &both);
    }

    #[test]
    fn files_of_pip_and_uv_are_read() {
        let pip = "[global]\nindex_url = https://a.example/simple\n[install]\nfind-links =\n    https://b.example\n    /wheels\n";
        check(&[], &[(".config/pip/pip.conf", pip)], &["a.example:443", "b.example:443"]);
        let colon = "[global]\nindex-url: https://a.example/simple#x=y\nproxy = https://c.example\n";
        check(&[], &[(".config/pip/pip.conf", colon)], &["a.example:443"]);
        let uv = "index-url = 'https://a.example'\n[[index]]\nurl = 'https://b.example'\n[pip]\nextra-index-url = ['https://c.example']\n";
        check(&[], &[(".config/uv/uv.toml", uv)], &["a.example:443", "b.example:443", "c.example:443"]);
        check(&[], &[(".config/uv/uv.toml", "damaged [")], &PYPI);
        let none = [("UV_NO_CONFIG", "1"), ("PIP_CONFIG_FILE", "/dev/null")];
        check(&none, &[(".config/pip/pip.conf", pip), (".config/uv/uv.toml", uv)], &PYPI);
    }

    #[test]
    fn the_host_of_a_url_is_known() {
        let check = |requirement: &str, expected: Option<&str>| {
            assert_eq!(host_of(requirement).as_deref(), expected, "{requirement}");
        };
        check("git+https://git.example/a@main", Some("git.example:443"));
        check("a @ https://host.example/a.whl ; python_version > '3'", Some("host.example:443"));
        check("a@https://user@host.example/a.whl", Some("host.example:443"));
        check("a @ http://127.0.0.1:8000/a.whl", Some("127.0.0.1:8000"));
        check("https://[::1]/a.whl", Some("[::1]:443"));
        check("git+ssh://git@git.example/a", Some("git.example:22"));
        check("a @ file:///a ; os_name != '+http://127.0.0.1:1/'", None);
        check("a ; os_name != '+http://host.example/'", None);
        check("requests>=2", None);
    }
}
