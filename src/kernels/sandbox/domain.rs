//! Which hosts code in the sandbox may reach: the patterns of `allowedDomains` and `deniedDomains`, and the
//! hosts that they are compared with.
//!
//! Hosts and patterns go through the same normal form, that of URLs: lower case, names with other letters in
//! Punycode, no dot at the end, addresses in their one canonical spelling (`127.1`, `2130706433`, `0x7f.1`
//! and `::ffff:127.0.0.1` are all `127.0.0.1`). The compared spelling is the one that is resolved and
//! dialled, by the proxy.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// The longest name that DNS can hold, without the dot at its end.
const LONGEST_NAME: usize = 253;
/// The longest part of a name between two dots.
const LONGEST_LABEL: usize = 63;

/// A host in its normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum DomainHost {
    /// A name: lower case, ASCII, without a dot at its end.
    Name(String),
    /// An address. IPv4 addresses that were written as IPv6 are IPv4.
    Address(IpAddr),
}

impl DomainHost {
    /// The host that `text` names, or `None` if no host can have this name.
    ///
    /// IPv6 addresses may have brackets. Zones (`fe80::1%eth0`) and percent-encoding are refused.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').map_or(Some(text), |rest| rest.strip_suffix(']'))?;
        if bare.contains(':') {
            return bare.parse().ok().map(|address: IpAddr| Self::Address(address.to_canonical()));
        }
        // `url` would decode percents, and takes stars for letters.
        if bare.len() != text.len() || bare.contains(['%', '*']) {
            return None;
        }
        match url::Host::parse(bare).ok()? {
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                let is_label = |label: &str| !label.is_empty() && label.len() <= LONGEST_LABEL;
                let is_name = name.len() <= LONGEST_NAME && name.split('.').all(is_label);
                is_name.then(|| Self::Name(name.to_owned()))
            }
            url::Host::Ipv4(address) => Some(Self::Address(address.into())),
            url::Host::Ipv6(address) => Some(Self::Address(IpAddr::from(address).to_canonical())),
        }
    }

    /// Whether it is `localhost` or a name beneath it, which mean this computer's loopback (RFC 6761).
    pub(crate) fn is_localhost(&self) -> bool {
        matches!(self, Self::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }
}

impl fmt::Display for DomainHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// One entry of `allowedDomains` or `deniedDomains`: a pattern for hosts, and an optional port.
///
/// `Display` gives the normal form, which is a valid entry with the same meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainRule {
    pattern: DomainPattern,
    port: Option<NonZeroU16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DomainPattern {
    Any,
    Exactly(DomainHost),
    /// Names that end in a dot and this name.
    Beneath(String),
}

/// Why a text is not a valid entry of `allowedDomains` or `deniedDomains`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DomainError {
    /// There is nothing in it.
    #[error("an empty pattern matches nothing\nhint: write a domain like `example.com`")]
    Empty,
    /// A scheme, path, user or query.
    #[error("`{text}` is more than a host\nhint: write the host alone, like `{host}` or `{host}:443`")]
    Url {
        /// The entry.
        text: String,
        /// The host that is likely meant.
        host: String,
    },
    /// An IPv6 address without brackets, whose end could be a port.
    #[error(
        "`{text}` could be an address with or without a port\nhint: write IPv6 addresses in brackets, like `[::1]` or `[::1]:443`"
    )]
    Brackets {
        /// The entry.
        text: String,
    },
    /// The part after the colon is no port.
    #[error("`{port}` is no port\nhint: a port is a number from 1 to 65535 without zeros before it")]
    Port {
        /// The text after the colon.
        port: String,
    },
    /// `*`, which would open the whole network.
    #[error("`*` would match every host\nhint: name the domains; `*` may stand in `deniedDomains` only")]
    Everything,
    /// A star that is not a whole first label.
    #[error(
        "`{text}` has a `*` in the wrong place\nhint: `*` may only be the first label, as in `*.example.com`"
    )]
    Star {
        /// The entry.
        text: String,
    },
    /// `*.com`.
    #[error(
        "`{text}` would match all of a top-level domain\nhint: name a domain beneath it, like `*.example.com`"
    )]
    TooBroad {
        /// The entry.
        text: String,
    },
    /// A name without a dot.
    #[error(
        "`{text}` has no dot\nhint: write the full name, like `example.com`; of short names only `localhost` is allowed"
    )]
    Short {
        /// The entry.
        text: String,
    },
    /// An address in a form that means another one to some programs.
    #[error("`{text}` is an unusual spelling of an address\nhint: write `{address}`")]
    Spelling {
        /// The text that was written.
        text: String,
        /// The usual spelling.
        address: DomainHost,
    },
    /// No host can have this name.
    #[error(
        "`{text}` is no host name\nhint: write a domain like `example.com`, `*.example.com`, or an address like `192.0.2.1` or `[2001:db8::1]`"
    )]
    NoHost {
        /// The entry.
        text: String,
    },
}

impl DomainRule {
    /// Reads an entry of `allowedDomains`: `example.com`, `*.example.com` (everything beneath, not the domain itself),
    /// `localhost`, `192.0.2.1` or `[2001:db8::1]`, each perhaps with a port, as in `example.com:443`.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub(crate) fn parse(text: &str) -> Result<Self, DomainError> {
        let rule = Self::parse_denied(text)?;
        if rule.pattern == DomainPattern::Any { Err(DomainError::Everything) } else { Ok(rule) }
    }

    /// Reads an entry of `deniedDomains`: as in `allowedDomains`, and `*` for every host, as in `*` or `*:22`.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub(crate) fn parse_denied(text: &str) -> Result<Self, DomainError> {
        if text.is_empty() {
            return Err(DomainError::Empty);
        }
        if text.contains(['/', '@', '?', '#', '\\']) {
            return Err(more_than_a_host(text));
        }
        let (host, port) = split_port(text)?;
        Ok(Self { pattern: DomainPattern::parse(host)?, port })
    }

    /// Every host, which no entry of `allowedDomains` can say.
    pub(crate) fn everything() -> Self {
        Self { pattern: DomainPattern::Any, port: None }
    }

    /// Whether this rule matches connections to `port` of `host`.
    pub(crate) fn matches(&self, host: &DomainHost, port: u16) -> bool {
        self.port.is_none_or(|own| own.get() == port) && self.pattern.matches(host)
    }
}

impl fmt::Display for DomainRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            DomainPattern::Any => formatter.write_str("*")?,
            DomainPattern::Exactly(host) => host.fmt(formatter)?,
            DomainPattern::Beneath(name) => write!(formatter, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

impl DomainPattern {
    fn parse(text: &str) -> Result<Self, DomainError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let no_host = || DomainError::NoHost { text: text.to_owned() };
        let (name, is_beneath) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        if name.contains('*') {
            return Err(DomainError::Star { text: text.to_owned() });
        }
        if name.ends_with('.') {
            return Err(no_host());
        }
        match DomainHost::parse(name).ok_or_else(no_host)? {
            DomainHost::Name(name) if is_beneath && name.contains('.') => Ok(Self::Beneath(name)),
            DomainHost::Name(_) if is_beneath => Err(DomainError::TooBroad { text: text.to_owned() }),
            DomainHost::Name(name) if name.contains('.') || name == "localhost" => {
                Ok(Self::Exactly(DomainHost::Name(name)))
            }
            DomainHost::Name(_) => Err(DomainError::Short { text: text.to_owned() }),
            DomainHost::Address(_) if is_beneath => Err(no_host()),
            DomainHost::Address(address) => usual_address(name, address),
        }
    }

    fn matches(&self, host: &DomainHost) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exactly(own), host) => own == host,
            (Self::Beneath(own), DomainHost::Name(name)) => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Self::Beneath(_), DomainHost::Address(_)) => false,
        }
    }
}

/// IPv6 has many good spellings, IPv4 one: `127.1` and `010.0.0.1` mean different hosts to different programs.
fn usual_address(text: &str, address: IpAddr) -> Result<DomainPattern, DomainError> {
    let host = DomainHost::Address(address);
    let is_usual = text.contains(':') || text == address.to_string();
    if is_usual {
        Ok(DomainPattern::Exactly(host))
    } else {
        Err(DomainError::Spelling { text: text.to_owned(), address: host })
    }
}

/// `https://example.com/path` → what to write instead.
fn more_than_a_host(text: &str) -> DomainError {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = split_port(host).ok().and_then(|(host, _)| DomainHost::parse(host));
    let host = host.map_or_else(|| "example.com".to_owned(), |host| host.to_string());
    DomainError::Url { text: text.to_owned(), host }
}

/// The host, with its brackets, and the port.
fn split_port(text: &str) -> Result<(&str, Option<NonZeroU16>), DomainError> {
    let (host, port) = match text.find(']') {
        Some(end) if text.starts_with('[') => match &text[end + 1..] {
            "" => return Ok((text, None)),
            rest => (&text[..=end], rest.strip_prefix(':').unwrap_or(rest)),
        },
        _ => match text.split_once(':') {
            None => return Ok((text, None)),
            Some((_, rest)) if rest.contains(':') => {
                return Err(DomainError::Brackets { text: text.to_owned() });
            }
            Some(parts) => parts,
        },
    };
    let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    match port.parse() {
        Ok(port) if is_plain => Ok((host, Some(port))),
        _ => Err(DomainError::Port { port: port.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matching(rule: &str, host: &str, port: u16) -> bool {
        let host = DomainHost::parse(host).unwrap_or_else(|| panic!("`{host}` is no host"));
        DomainRule::parse_denied(rule).unwrap().matches(&host, port)
    }

    #[track_caller]
    fn check(rule: &str, yes: &[&str], no: &[&str]) {
        for host in yes {
            assert!(matching(rule, host, 443), "`{rule}` should match `{host}`");
        }
        for host in no {
            assert!(!matching(rule, host, 443), "`{rule}` should not match `{host}`");
        }
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = DomainRule::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "`{text}` → {error}");
    }

    #[test]
    fn names_match_exactly_in_any_case() {
        check(
            "example.com",
            &["example.com", "EXAMPLE.com", "example.com."],
            &["www.example.com", "example.org"],
        );
        check("Example.COM", &["example.com"], &["notexample.com", "example.com.evil.org"]);
        check("localhost", &["localhost", "LocalHost."], &["a.localhost", "127.0.0.1"]);
    }

    #[test]
    fn a_star_matches_what_is_beneath_and_not_the_domain_itself() {
        let no = ["example.com", "badexample.com", "example.com.evil.org", "192.0.2.1"];
        check("*.example.com", &["a.example.com", "A.B.Example.com."], &no);
    }

    #[test]
    fn addresses_match_in_every_spelling() {
        let spellings = [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "::ffff:127.0.0.1",
            "[::ffff:7f00:1]",
            "0177.0.0.1",
        ];
        check("127.0.0.1", &spellings, &["127.0.0.2", "localhost", "::1"]);
        check("[::1]", &["::1", "[::1]", "0:0:0:0:0:0:0:1"], &["127.0.0.1", "::2"]);
        check("[2001:DB8:0::1]", &["2001:db8::1"], &[]);
        check("[::ffff:10.0.0.1]", &["10.0.0.1"], &[]);
    }

    #[test]
    fn other_letters_are_compared_in_punycode() {
        check(
            "bücher.example",
            &["xn--bcher-kva.example", "BÜCHER.example", "bücher。example"],
            &["bucher.example"],
        );
        check("xn--bcher-kva.example", &["bücher.example"], &[]);
        check("example.com", &["ｅｘａｍｐｌｅ．com"], &["еxample.com"]);
    }

    #[test]
    fn a_port_narrows_a_rule() {
        for (rule, host, port, expected) in [
            ("example.com:443", "example.com", 443, true),
            ("example.com:443", "example.com", 80, false),
            ("*.example.com:8443", "a.example.com", 8443, true),
            ("[::1]:443", "::1", 443, true),
            ("[::1]:443", "::1", 80, false),
            ("192.0.2.1:22", "192.0.2.1", 22, true),
            ("*:22", "anything.example", 22, true),
            ("*:22", "192.0.2.7", 22, true),
            ("*:22", "anything.example", 443, false),
            ("*", "::1", 1, true),
        ] {
            assert_eq!(matching(rule, host, port), expected, "{rule} {host} {port}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_right_one() {
        refused("", "empty");
        refused("https://example.com/x", "like `example.com` or");
        refused("https://me@Example.com:8080", "like `example.com` or");
        refused("example.com/path", "more than a host");
        refused("*", "`deniedDomains` only");
        refused("*:443", "`deniedDomains` only");
        refused("*.com", "top-level");
        refused("*.localhost", "top-level");
        refused("*.", "no host name");
        refused("*example.com", "wrong place");
        refused("a.*.com", "wrong place");
        refused("intranet", "no dot");
        refused("::1", "in brackets");
        refused("2001:db8::1:443", "in brackets");
        refused("example.com:", "no port");
        refused("example.com:0", "no port");
        refused("example.com:065", "no port");
        refused("example.com:+80", "no port");
        refused("example.com:65536", "no port");
        refused("[::1]443x", "no port");
        refused("[::1", "in brackets");
        refused("[example.com]", "no host name");
        refused(".example.com", "no host name");
        refused("example..com", "no host name");
        refused("example.com.", "no host name");
        refused("exa mple.com", "no host name");
        refused("ex%61mple.com", "no host name");
        refused("127.1", "write `127.0.0.1`");
        refused("0177.0.0.1", "write `127.0.0.1`");
        refused("*.0.0.1", "no host name");
        refused("[fe80::1%eth0]", "no host name");
        refused(&format!("{}.com", "a".repeat(64)), "no host name");
    }

    #[test]
    fn what_is_no_host_is_not_compared() {
        for text in [
            "",
            ".",
            "a..b",
            "a\0.allowed.com",
            "a b",
            "::1%x.allowed.com",
            "[::1",
            "::1]",
            "a/b",
            "a:80",
            "%61.com",
            "*",
        ] {
            assert_eq!(DomainHost::parse(text), None, "`{text}`");
        }
    }

    #[test]
    fn the_normal_form_is_the_same_rule() {
        for (text, normal) in [
            ("Example.com:443", "example.com:443"),
            ("*.BÜCHER.example", "*.xn--bcher-kva.example"),
            ("[2001:DB8:0:0::1]:1", "[2001:db8::1]:1"),
            ("*:22", "*:22"),
        ] {
            let rule = DomainRule::parse_denied(text).unwrap();
            assert_eq!(rule.to_string(), normal);
            assert_eq!(DomainRule::parse_denied(normal).unwrap(), rule);
        }
    }
}
