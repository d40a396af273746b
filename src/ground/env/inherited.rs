//! The variables that an MCP server inherits from ipybox's environment, and the credentials in them.

use percent_encoding::percent_decode_str;

/// User, paths and terminal: the variables that the MCP SDKs let a stdio server inherit.
///
/// Source: `DEFAULT_INHERITED_ENV_VARS` of the official Python and TypeScript SDKs.
const WHO: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Which certificates are trusted.
#[rustfmt::skip]
pub(crate) const CERTIFICATES: &[&str] = &[
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA", "PIP_CERT", "PIP_CLIENT_CERT", "AWS_CA_BUNDLE", "DENO_CERT", "DENO_TLS_CA_STORE",
    "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "NIX_SSL_CERT_FILE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    "UV_INSECURE_HOST", "PIP_TRUSTED_HOST",
];

/// Proxies. `NODE_USE_ENV_PROXY` makes Node.js use the others.
#[rustfmt::skip]
pub(crate) const PROXIES: &[&str] = &[
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy", "NODE_USE_ENV_PROXY", "PIP_PROXY",
];

/// The variables for the places in which uv, pip, npm and Deno find packages, and keep them.
#[rustfmt::skip]
const PACKAGES: &[&str] = &[
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "NETRC", "UV_CACHE_DIR", "UV_CONFIG_FILE",
    "UV_CREDENTIALS_DIR", "UV_DEFAULT_INDEX", "UV_EXCLUDE_NEWER", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT", "UV_INDEX", "UV_KEYRING_PROVIDER", "UV_LINK_MODE", "UV_NO_CACHE",
    "UV_NO_CONFIG", "UV_OFFLINE", "UV_PYTHON", "UV_TOOL_DIR", "PIP_CACHE_DIR", "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX", "DENO_DIR",
    "COREPACK_NPM_REGISTRY",
];

/// The same, of uv: names and passwords of indexes are in `UV_INDEX_…`.
const PACKAGES_PREFIXES: &[&str] = &["UV_INDEX_", "UV_PYTHON_"];

/// npm's options that decide where packages come from and go to, after `npm_config_`, in any case. Others
/// configure what is run, and npm sets them itself for programs that `npx` runs: a server must not inherit
/// ours.
#[rustfmt::skip]
const NPM: &[&str] = &[
    "registry", "cache", "ca", "cafile", "cert", "key", "strict_ssl", "proxy", "https_proxy", "http_proxy",
    "noproxy", "userconfig", "globalconfig", "offline", "prefer_offline", "fetch_retries", "fetch_timeout",
];
const NPM_PREFIX: &str = "npm_config_";

/// Whether an MCP server inherits the variable `name`.
pub(super) fn is_for_servers(name: &str) -> bool {
    [WHO, CERTIFICATES, PROXIES, PACKAGES].iter().any(|names| names.contains(&name))
        || PACKAGES_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || npm_option(name).is_some_and(|option| {
            // Credentials (`//host/:_authToken`) and the registries of scopes (`@scope:registry`).
            option.starts_with("//") || option.starts_with('@') || NPM.contains(&option.as_str())
        })
}

/// The name of npm's option that a variable sets.
fn npm_option(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    lower.strip_prefix(NPM_PREFIX).map(|option| option.replace('-', "_"))
}

/// The credentials in a variable's value.
pub(super) fn credentials(name: &str, value: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    if ["_password", "_token", ":_authtoken", ":_password", ":_auth"].iter().any(|end| lower.ends_with(end)) {
        return vec![value.to_owned()];
    }
    // Values may be lists: of indexes, with blanks between them.
    value.split([' ', ',']).filter_map(of_url).flatten().collect()
}

/// User and password in a URL as written, and the decoded password.
fn of_url(url: &str) -> Option<Vec<String>> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user_info, _) = authority.rsplit_once('@')?;
    let secret = user_info.split_once(':').map_or(user_info, |(_, password)| password);
    let plain = percent_decode_str(secret).decode_utf8_lossy().into_owned();
    Some(vec![user_info.to_owned(), secret.to_owned(), plain])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_inherits_what_it_takes_to_download_it() {
        for name in
            ["PATH", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "no_proxy", "UV_INDEX_URL"]
        {
            assert!(is_for_servers(name), "{name}");
        }
        for name in ["UV_INDEX_INTERNAL_PASSWORD", "UV_CACHE_DIR", "PIP_INDEX_URL", "XDG_CACHE_HOME"] {
            assert!(is_for_servers(name), "{name}");
        }
        for name in
            ["npm_config_registry", "NPM_CONFIG_CAFILE", "npm_config_@a:registry", "npm_config_strict-ssl"]
        {
            assert!(is_for_servers(name), "{name}");
        }
    }

    #[test]
    fn a_server_inherits_neither_other_secrets_nor_what_npx_set_for_us() {
        for name in ["API_KEY", "UV_PUBLISH_TOKEN", "UV_PROJECT", "PIP_TARGET", "LD_PRELOAD", "NODE_OPTIONS"]
        {
            assert!(!is_for_servers(name), "{name}");
        }
        for name in [
            "npm_config_package",
            "npm_config_yes",
            "npm_config_call",
            "npm_package_name",
            "npm_lifecycle_event",
        ] {
            assert!(!is_for_servers(name), "{name}");
        }
    }

    #[test]
    fn credentials_are_found_in_urls_and_by_name() {
        let check = |name: &str, value: &str, expected: &[&str]| {
            assert_eq!(credentials(name, value), expected, "{name}={value}");
        };
        check("HTTPS_PROXY", "http://me:p%40ss@proxy:8080/", &["me:p%40ss", "p%40ss", "p@ss"]);
        check("https_proxy", "me:word@proxy:8080", &["me:word", "word", "word"]);
        check("UV_INDEX", "a=https://token@host/x https://b.test/simple", &["token", "token", "token"]);
        check("UV_INDEX_A_PASSWORD", "word", &["word"]);
        check("npm_config_//host/:_authToken", "word", &["word"]);
        check("SSL_CERT_FILE", "/etc/ca.pem", &[]);
        check("HTTP_PROXY", "http://proxy:8080/path@x", &[]);
    }
}
