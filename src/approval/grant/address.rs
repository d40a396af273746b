//! Addresses, by where they lead: the domain of a mail address, the origin of a URL. ASCII alone, and in one spelling: what
//! programs could read in different ways has neither.

use url::Url;

/// Providers at which everybody can have an address: their domain bounds nothing.
#[rustfmt::skip]
const EVERYBODYS: [&str; 16] = [
    "aol.com", "fastmail.com", "gmail.com", "gmx.de", "gmx.net", "googlemail.com", "hotmail.com",
    "icloud.com", "live.com", "mail.com", "outlook.com", "proton.me", "protonmail.com", "qq.com",
    "yahoo.com", "yandex.ru",
];

/// The domain of a mail address, in small letters.
pub(super) fn domain_of(address: &str) -> Option<String> {
    let (local, domain) = address.split_once('@')?;
    let is_literal = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let is_local = (1..=64).contains(&local.len())
        && local.chars().all(is_literal)
        // A dash could make an option of it.
        && !local.starts_with(['-', '.'])
        && !local.ends_with('.')
        && !local.contains("..");
    (is_local && is_domain(domain)).then(|| domain.to_ascii_lowercase())
}

/// Whether this is the name of a domain: two labels at least, and no number at its end.
pub(super) fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253
        && name.contains('.')
        && name.split('.').all(is_label)
        && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Whether everybody can have an address at this domain.
pub(super) fn is_everybodys(domain: &str) -> bool {
    EVERYBODYS.contains(&domain)
}

/// Scheme, host and port of an `http` or `https` URL.
pub(super) fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !url.chars().all(|c| c.is_ascii_graphic() && c != '\\')
        || !(scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
    {
        return None;
    }
    let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    // No user, no query behind the host, no escapes, no brackets.
    let is_plain = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    let is_port =
        port.is_none_or(|port| (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit()));
    if !is_plain || !is_port {
        return None;
    }
    let parsed = Url::parse(url).ok()?;
    // `0x7f.1` is `127.0.0.1` to some.
    let is_same = parsed.host_str().is_some_and(|parsed| parsed.eq_ignore_ascii_case(host))
        && parsed.username().is_empty()
        && parsed.password().is_none();
    is_same.then(|| parsed.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_addresses_have_a_domain() {
        for (address, expected) in [
            ("a@example.com", "example.com"),
            ("first.last+tag_1-x@Mail.Example.COM", "mail.example.com"),
            ("a@xn--bcher-kva.com", "xn--bcher-kva.com"),
        ] {
            assert_eq!(domain_of(address).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_may_be_read_in_two_ways_has_none() {
        for address in [
            "",
            "@example.com",
            "a@",
            "a",
            "a@example",
            "a@b@example.com",
            "a@example.com,b@evil.org",
            "a@example.com;b@evil.org",
            "a@example.com b@evil.org",
            "a@example.com\r\nBcc: b@evil.org",
            "a@example.com\n",
            " a@example.com",
            "a@example.com ",
            "A <a@example.com>",
            "<a@example.com>",
            "\"a\"@example.com",
            "a(b)@example.com",
            "a%evil.org@example.com",
            "evil.org!a@example.com",
            "-oQ/tmp@example.com",
            ".a@example.com",
            "a.@example.com",
            "a..b@example.com",
            "a@example.com.",
            "a@.example.com",
            "a@-example.com",
            "a@example..com",
            "a@[127.0.0.1]",
            "a@127.0.0.1",
            "a@ex\u{430}mple.com",
            "a@example\u{3002}com",
            "\u{430}@example.com",
            "a\0@example.com",
            "mailto:a@example.com",
            "a@example.com?cc=b",
        ] {
            assert_eq!(domain_of(address), None, "{address:?}");
        }
    }

    #[test]
    fn urls_have_an_origin() {
        for (url, expected) in [
            ("https://example.com", "https://example.com"),
            ("https://example.com/", "https://example.com"),
            ("HTTPS://Example.COM/a?b=c#d", "https://example.com"),
            ("https://example.com:443/a", "https://example.com"),
            ("https://example.com:8443/a", "https://example.com:8443"),
            ("http://localhost:80/a", "http://localhost"),
            ("https://example.com/a@b", "https://example.com"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
        ] {
            assert_eq!(origin_of(url).as_deref(), Some(expected));
        }
    }

    #[test]
    fn odd_urls_have_none() {
        for url in [
            "",
            "example.com",
            "//example.com/",
            "https:/example.com",
            "https:example.com",
            "ftp://example.com/",
            "file:///a",
            "javascript:https://example.com/",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://example.com@evil.org/",
            "https://example.com\\@evil.org/",
            "https://evil.org\\.example.com/",
            "https://evil.org?.example.com/",
            "https://evil.org#.example.com/",
            "https://example.com?a",
            "https://example.com%2eevil.org/",
            "https://exa\tmple.com/",
            "https://example.com/\n",
            " https://example.com/",
            "https://ex\u{430}mple.com/",
            "https://example\u{3002}com/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://[::1]/",
            "https://example.com:/",
            "https://example.com:99999/",
            "https://example.com:-1/",
            "https:///example.com/",
        ] {
            assert_eq!(origin_of(url), None, "{url:?}");
        }
        assert_ne!(origin_of("https://example.com./"), origin_of("https://example.com/"));
        assert_ne!(origin_of("https://a.example.com/"), origin_of("https://example.com/"));
        assert_ne!(origin_of("http://example.com/"), origin_of("https://example.com/"));
    }
}
