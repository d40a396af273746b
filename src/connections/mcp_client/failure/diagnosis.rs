//! Possible causes of a server's failure, guessed from its output: pure.

use crate::ground::env::{CERTIFICATES, PROXIES};
use crate::ground::text::backticked;

/// Messages of programs about untrusted certificates: uv and Rust, Python and OpenSSL, Node.js, Go.
#[rustfmt::skip]
const UNTRUSTED: &[&str] = &[
    "UnknownIssuer", "invalid peer certificate", "certificate verify failed", "CERTIFICATE_VERIFY_FAILED",
    "self-signed certificate", "self signed certificate", "SELF_SIGNED_CERT",
    "unable to get local issuer certificate", "UNABLE_TO_GET_ISSUER_CERT", "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "unable to verify the first certificate", "x509: certificate signed by unknown authority",
];
/// Messages of working installers. Only then does a network error suggest proxies.
#[rustfmt::skip]
const INSTALLERS: &[&str] = &[
    "npm error", "npm ERR!", "Failed to fetch", "Request failed after", "Failed to download",
    "pip._vendor", "registry",
];
#[rustfmt::skip]
const UNREACHABLE: &[&str] = &[
    "ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "dns error",
    "failed to lookup address", "name resolution", "Connection refused", "operation timed out", "407 ",
    "tunnel",
];
/// Messages of Node.js if files of an installation are missing or truncated.
#[rustfmt::skip]
const INCOMPLETE: &[&str] = &[
    "Cannot find module", "Cannot find package", "MODULE_NOT_FOUND", "Error parsing",
    "Unexpected end of JSON input", "ENOTEMPTY", "ECOMPROMISED",
];

/// Python's words about a server that was written for version 1 of the SDK and got version 2: modules have moved, and `Server`
/// has no decorators any more.
#[rustfmt::skip]
const OTHER_SDK: &[&str] = &[
    "No module named 'mcp.server.fastmcp'", "cannot import name 'FastMCP' from 'mcp.server'",
    "'Server' object has no attribute 'call_tool'", "'Server' object has no attribute 'completion'",
    "'Server' object has no attribute 'get_prompt'", "'Server' object has no attribute 'list_prompts'",
    "'Server' object has no attribute 'list_resource_templates'", "'Server' object has no attribute 'list_resources'",
    "'Server' object has no attribute 'list_tools'", "'Server' object has no attribute 'progress_notification'",
    "'Server' object has no attribute 'read_resource'", "'Server' object has no attribute 'set_logging_level'",
    "'Server' object has no attribute 'subscribe_resource'", "'Server' object has no attribute 'unsubscribe_resource'",
];

/// A hint for a server's output; `variables` are the names of its variables.
pub(crate) fn hint(words: &str, variables: &[String]) -> Option<String> {
    let says = |any: &[&str]| any.iter().any(|sign| words.contains(sign));
    if let Some(directory) = npx_directory(words).filter(|_| says(INCOMPLETE)) {
        return Some(format!(
            "npx's copy of the server may be incomplete, because its installation was killed once: remove `{directory}` \
             and register the server again. If the same is missing then, the package itself is at fault: name another \
             version of it, as `package@version`"
        ));
    }
    if says(OTHER_SDK) {
        return Some(
            "the server was written for version 1 of MCP's Python SDK, and got version 2. If `command` is `uvx`, begin `args` \
             with `\"--with\", \"mcp<2\"`; otherwise install `mcp<2` where the server is installed, or another version of the \
             server"
                .to_owned(),
        );
    }
    let of = |names: &[&str]| {
        let set = variables.iter().filter(|name| names.contains(&name.as_str()));
        let set = backticked(set);
        if set.is_empty() { "none of them is set".to_owned() } else { format!("set: {set}") }
    };
    if says(UNTRUSTED) {
        return Some(format!(
            "the certificate's issuer is not trusted. Of ipybox's environment a server inherits few variables, those of \
             certificates among them ({}). uv and Python take `SSL_CERT_FILE`, Node.js and npm `NODE_EXTRA_CA_CERTS`: set \
             them in ipybox's environment, or in the server's `env`",
            of(CERTIFICATES)
        ));
    }
    (says(INSTALLERS) && says(UNREACHABLE)).then(|| {
        format!(
            "the packages cannot be reached. Of ipybox's environment a server inherits few variables, those of proxies \
             among them ({}): set `HTTPS_PROXY` and `NO_PROXY` in ipybox's environment, or in the server's `env`",
            of(PROXIES)
        )
    })
}

/// The directory of npx's cache that a path in `words` leads into: `…/_npx/<hash>`.
fn npx_directory(words: &str) -> Option<&str> {
    const MARK: &str = "/_npx/";
    let mark = words.find(MARK)?;
    let hash = mark + MARK.len();
    let length = words[hash..].find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(words.len() - hash);
    let before = words[..mark].rfind(|letter: char| letter.is_whitespace() || "'\"`(".contains(letter));
    let start =
        before.map_or(0, |position| position + words[position..].chars().next().map_or(1, char::len_utf8));
    (length > 0).then(|| words[start..hash + length].trim_start_matches("file://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, variables: &[&str], expected: &[&str]) {
        let variables: Vec<String> = variables.iter().map(|&name| name.to_owned()).collect();
        let hint = hint(words, &variables).unwrap_or_default();
        assert!(expected.iter().all(|expected| hint.contains(expected)), "{words}: {hint}");
        assert_eq!(expected.is_empty(), hint.is_empty(), "{words}: {hint}");
    }

    #[test]
    fn a_certificate_that_is_not_trusted_names_the_variables() {
        let uv = "  Caused by: invalid peer certificate: UnknownIssuer";
        check(uv, &["PATH", "SSL_CERT_FILE"], &["`SSL_CERT_FILE`, Node.js", "(set: `SSL_CERT_FILE`)"]);
        check(
            "npm error code SELF_SIGNED_CERT_IN_CHAIN",
            &["PATH"],
            &["none of them is set", "NODE_EXTRA_CA_CERTS"],
        );
    }

    #[test]
    fn packages_that_cannot_be_reached_name_the_proxies() {
        let npm = "npm error code ENOTFOUND\nnpm error network request to https://registry.test/x failed";
        check(npm, &["HTTPS_PROXY"], &["set: `HTTPS_PROXY`"]);
        check("connect ECONNREFUSED 127.0.0.1:5432", &[], &[]);
        check("npm error code E404", &[], &[]);
    }

    #[test]
    fn a_server_for_the_other_sdk_gets_it() {
        let words = "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where";
        check(words, &[], &["`\"--with\", \"mcp<2\"`"]);
        for name in ["list_tools", "list_resources", "call_tool"] {
            let words =
                format!("    @app.{name}()\nAttributeError: 'Server' object has no attribute '{name}'");
            check(&words, &[], &["`\"--with\", \"mcp<2\"`"]);
        }
        check("ModuleNotFoundError: No module named 'mcp.other'", &[], &[]);
    }

    #[test]
    fn a_broken_cache_of_npx_is_named() {
        let words = "Error: Cannot find module '/home/a/.npm/_npx/5c5a86/node_modules/b/i.js'. Please verify";
        check(words, &[], &["remove `/home/a/.npm/_npx/5c5a86` and"]);
        let words = "Cannot find package 'b' imported from file:///home/é/.npm/_npx/12ab/node_modules/c/d.js";
        check(words, &[], &["`/home/é/.npm/_npx/12ab`"]);
        check("Cannot find module 'x' at /home/a/server.js", &[], &[]);
        check("TypeError at /home/a/.npm/_npx/12ab/node_modules/c/d.js", &[], &[]);
    }
}
