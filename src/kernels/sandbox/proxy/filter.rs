//! Decides whether a connection is allowed: by name and port, and again by the addresses that the name
//! resolves to.
//!
//! It resolves and connects nothing.

use std::net::IpAddr;

use crate::ground::web::{AddressRange, ClosedAddress, closed, deliveries};
use crate::kernels::sandbox::domain::{DomainHost, DomainRule};

/// The allowed and denied hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostFilter {
    /// Hosts that may be reached; no others may.
    pub(crate) allowed: Vec<DomainRule>,
    /// Hosts that may not be reached, even if they are allowed. Addresses among them also apply to resolved
    /// names.
    pub(crate) denied: Vec<DomainRule>,
    /// Further addresses that allowed names must not resolve to.
    pub(crate) denied_addresses: Vec<AddressRange>,
}

/// Why a connection is not made. The words are for those who run the code inside: no address is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConnectionRefusal {
    #[error("`{host}` (port {port}) is not among `allowedDomains` of the sandbox")]
    NotAllowed { host: DomainHost, port: u16 },
    #[error("`{host}` (port {port}) is denied by `{rule}` among `deniedDomains` of the sandbox")]
    Denied { host: DomainHost, port: u16, rule: DomainRule },
    #[error(
        "`{host}` leads to {why}, which is open only if the address itself is among `allowedDomains` of the sandbox"
    )]
    Closed { host: DomainHost, why: BadAddress },
}

/// The fault of the address behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadAddress {
    #[error(transparent)]
    Closed(ClosedAddress),
    #[error("an address of the computer that runs the sandbox")]
    Own,
    #[error("an address among `deniedDomains`")]
    Denied,
    #[error("an address among `deniedResolvedAddresses`")]
    Listed,
    #[error("an address that is not loopback")]
    NotLoopback,
}

impl HostFilter {
    /// Judges what the client asks for.
    pub(super) fn judge(&self, host: &DomainHost, port: u16) -> Result<(), ConnectionRefusal> {
        let matches = |rule: &&DomainRule| rule.matches(host, port);
        if let Some(rule) = self.denied.iter().find(matches) {
            return Err(ConnectionRefusal::Denied { host: host.clone(), port, rule: rule.clone() });
        }
        match self.allowed.iter().find(matches) {
            Some(_) => Ok(()),
            None => Err(ConnectionRefusal::NotAllowed { host: host.clone(), port }),
        }
    }

    /// Judges an address that the name `host` leads to; `own` are the addresses of this computer.
    pub(super) fn judge_address(
        &self,
        host: &DomainHost,
        address: IpAddr,
        port: u16,
        own: &[IpAddr],
    ) -> Result<(), ConnectionRefusal> {
        let why = self.why_not(host, address.to_canonical(), port, own);
        why.map_or(Ok(()), |why| Err(ConnectionRefusal::Closed { host: host.clone(), why }))
    }

    fn why_not(&self, host: &DomainHost, address: IpAddr, port: u16, own: &[IpAddr]) -> Option<BadAddress> {
        let names = |rules: &[DomainRule], address| {
            rules.iter().any(|rule| rule.matches(&DomainHost::Address(address), port))
        };
        if deliveries(address).any(|address| names(&self.denied, address)) {
            return Some(BadAddress::Denied);
        }
        if names(&self.allowed, address) {
            return None;
        }
        let closed = closed(address);
        // Who allows `localhost` allows loopback (RFC 6761), and nothing else that a resolver could make of the name.
        if host.is_localhost() {
            return (closed != Some(ClosedAddress::Loopback)).then_some(BadAddress::NotLoopback);
        }
        if let Some(why) = closed {
            return Some(BadAddress::Closed(why));
        }
        if deliveries(address).any(|address| own.contains(&address)) {
            return Some(BadAddress::Own);
        }
        self.denied_addresses.iter().any(|range| range.contains(address)).then_some(BadAddress::Listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allowed: &[&str], denied: &[&str], addresses: &[&str]) -> HostFilter {
        HostFilter {
            allowed: allowed.iter().map(|rule| DomainRule::parse(rule).unwrap()).collect(),
            denied: denied.iter().map(|rule| DomainRule::parse_denied(rule).unwrap()).collect(),
            denied_addresses: addresses.iter().map(|range| AddressRange::parse(range).unwrap()).collect(),
        }
    }

    #[track_caller]
    fn check(filter: &HostFilter, host: &str, port: u16, expected: &str) {
        let host = DomainHost::parse(host).unwrap();
        let verdict =
            filter.judge(&host, port).map_or_else(|refusal| refusal.to_string(), |()| "open".to_owned());
        assert!(verdict.contains(expected), "{host}:{port} → {verdict}");
    }

    #[track_caller]
    fn check_address(filter: &HostFilter, host: &str, address: &str, expected: &str) {
        let (host, address) = (DomainHost::parse(host).unwrap(), address.parse().unwrap());
        let own = ["1.2.3.4".parse().unwrap()];
        let judged = filter.judge_address(&host, address, 443, &own);
        let verdict = judged.map_or_else(|refusal| refusal.to_string(), |()| "open".to_owned());
        assert!(verdict.contains(expected), "{host} → {address} → {verdict}");
    }

    #[test]
    fn denials_come_before_permissions() {
        let filter =
            filter(&["*.example.com", "example.org:443", "192.0.2.1"], &["bad.example.com", "*:22"], &[]);
        check(&filter, "a.example.com", 80, "open");
        check(&filter, "192.0.2.1", 80, "open");
        check(&filter, "3221225985", 80, "open");
        check(&filter, "a.example.com", 22, "denied by `*:22`");
        check(&filter, "BAD.example.com.", 80, "denied by `bad.example.com`");
        check(&filter, "example.org", 80, "`example.org` (port 80) is not among `allowedDomains`");
        check(&filter, "example.com", 80, "not among");
        check(&filter, "192.0.2.2", 80, "not among");
    }

    #[test]
    fn names_lead_to_the_internet_only() {
        let filter = filter(&["a.example.com"], &["9.9.9.9"], &["8.8.0.0/16"]);
        check_address(&filter, "a.example.com", "1.1.1.1", "open");
        check_address(&filter, "a.example.com", "127.0.0.1", "a loopback address, which is open only if");
        check_address(&filter, "a.example.com", "::ffff:10.0.0.1", "a private address");
        check_address(&filter, "a.example.com", "1.2.3.4", "the computer that runs the sandbox");
        check_address(&filter, "a.example.com", "64:ff9b::102:304", "the computer that runs the sandbox");
        check_address(&filter, "a.example.com", "8.8.8.8", "deniedResolvedAddresses");
        check_address(&filter, "a.example.com", "9.9.9.9", "deniedDomains");
        check_address(&filter, "a.example.com", "64:ff9b::909:909", "deniedDomains");
    }

    #[test]
    fn an_address_that_is_allowed_itself_is_open_by_name_too() {
        let filter = filter(
            &["a.example.com", "10.0.0.1:443", "10.0.0.2:80", "1.2.3.4", "8.8.8.8"],
            &[],
            &["8.0.0.0/8"],
        );
        check_address(&filter, "a.example.com", "10.0.0.1", "open");
        check_address(&filter, "a.example.com", "::ffff:10.0.0.1", "open");
        check_address(&filter, "a.example.com", "64:ff9b::a00:1", "a private address");
        check_address(&filter, "a.example.com", "10.0.0.2", "a private address");
        check_address(&filter, "a.example.com", "1.2.3.4", "open");
        check_address(&filter, "a.example.com", "8.8.8.8", "open");
    }

    #[test]
    fn localhost_leads_to_loopback_only() {
        let filter = filter(&["localhost", "app.localhost"], &[], &[]);
        for host in ["localhost", "app.localhost"] {
            check_address(&filter, host, "127.0.0.1", "open");
            check_address(&filter, host, "::1", "open");
            check_address(&filter, host, "1.1.1.1", "not loopback");
        }
    }
}
