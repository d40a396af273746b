//! Addresses that a name must not resolve to: this computer, networks that are not the internet, and those
//! that the user lists.
//!
//! An allowed name may resolve to anything, since its owner decides that. Pure; the proxy calls it before it
//! connects.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// One entry of `deniedResolvedAddresses`: an address or a range like `203.0.113.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressRange(IpNet);

/// Why a text is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no range of addresses\nhint: write an address or a range without brackets, like `192.0.2.1`, \
     `10.0.0.0/8` or `fc00::/7`"
)]
pub(crate) struct RangeError {
    text: String,
}

impl AddressRange {
    /// Reads an address or a range in CIDR notation. Ranges of IPv4 addresses written as IPv6
    /// (`::ffff:10.0.0.0/104`) are read as the IPv4 ranges.
    ///
    /// # Errors
    ///
    /// If it is neither.
    pub(crate) fn parse(text: &str) -> Result<Self, RangeError> {
        let error = || RangeError { text: text.to_owned() };
        let net = if text.contains('/') {
            text.parse::<IpNet>().map_err(|_| error())?
        } else {
            IpNet::from(text.parse::<IpAddr>().map_err(|_| error())?)
        };
        match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if net.addr().is_ipv6() => {
                IpNet::new(address, prefix).map(Self).map_err(|_| error())
            }
            (IpAddr::V4(_), None) if net.addr().is_ipv6() => Err(error()),
            _ => Ok(Self(net)),
        }
    }

    /// Whether `address`, or the IPv4 address that it carries, lies in the range.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        deliveries(address).any(|address| self.0.contains(&address))
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Why a name must not resolve to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClosedAddress {
    /// `127.0.0.0/8`, `::1`.
    #[error("a loopback address")]
    Loopback,
    /// `0.0.0.0/8`, `::`; connecting to them reaches this computer.
    #[error("an unspecified address")]
    Unspecified,
    /// `169.254.0.0/16`, `fe80::/10`; with the metadata services of clouds.
    #[error("a link-local address")]
    LinkLocal,
    /// Metadata services outside of these ranges.
    #[error("a cloud's metadata address")]
    Metadata,
    /// RFC 1918, RFC 4193, RFC 6598 and other ranges that are no part of the internet.
    #[error("a private address")]
    Private,
    /// `224.0.0.0/4`, `ff00::/8`, broadcast.
    #[error("a multicast or broadcast address")]
    Multicast,
    /// Set aside for benchmarks, the future, and translation in a way that hides the target.
    #[error("a reserved address")]
    Reserved,
}

/// Metadata services outside of the link-local and private ranges.
const METADATA: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle Classic
];

/// Why a name must not resolve to `address`; `None` if it is a public address by its bits.
pub(crate) fn closed(address: IpAddr) -> Option<ClosedAddress> {
    deliveries(address).find_map(|address| match address {
        IpAddr::V4(address) => closed_v4(address),
        IpAddr::V6(address) => closed_v6(address),
    })
}

fn closed_v4(address: Ipv4Addr) -> Option<ClosedAddress> {
    match address.octets() {
        [127, ..] => Some(ClosedAddress::Loopback),
        [0, ..] => Some(ClosedAddress::Unspecified),
        [169, 254, ..] => Some(ClosedAddress::LinkLocal),
        _ if METADATA.contains(&address) => Some(ClosedAddress::Metadata),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Some(ClosedAddress::Private),
        [224..=239, ..] | [255, 255, 255, 255] => Some(ClosedAddress::Multicast),
        [192, 0, 0, _] | [198, 18 | 19, ..] | [240..=255, ..] => Some(ClosedAddress::Reserved),
        _ => None,
    }
}

fn closed_v6(address: Ipv6Addr) -> Option<ClosedAddress> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(ClosedAddress::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(ClosedAddress::Loopback),
        [0xfe80..=0xfebf, ..] => Some(ClosedAddress::LinkLocal),
        // Unique local, which all clouds' metadata services over IPv6 are in, and the old site-local.
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(ClosedAddress::Private),
        [0xff00..=0xffff, ..] => Some(ClosedAddress::Multicast),
        // Local NAT64: the position of the IPv4 address in it is unknown. Teredo hides it, too.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] => Some(ClosedAddress::Reserved),
        [0x100, 0, 0, ..] => Some(ClosedAddress::Reserved),
        _ => None,
    }
}

/// `address`, and the IPv4 address to which a network delivers what is sent to it: IPv4-mapped, IPv4-compatible,
/// IPv4-translated, NAT64 (`64:ff9b::/96`) and 6to4 (`2002::/16`).
pub(crate) fn deliveries(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let carried = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => carried(address),
    };
    std::iter::once(address).chain(carried.map(IpAddr::V4))
}

fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let quad = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0x2002, high, low, ..] => Some(quad(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(quad(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(why: Option<ClosedAddress>, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(closed(address.parse().unwrap()), why, "{address}");
        }
    }

    #[test]
    fn the_internet_is_open() {
        check(None, &["1.1.1.1", "9.9.9.9", "172.32.0.1", "100.63.0.1", "192.0.1.1", "223.255.255.255"]);
        check(
            None,
            &[
                "2606:4700:4700::1111",
                "2a00:1450::1",
                "64:ff9b::101:101",
                "2002:101:101::1",
                "2001:4860::8888",
            ],
        );
    }

    #[test]
    fn this_computer_and_local_networks_are_closed() {
        check(Some(ClosedAddress::Loopback), &["127.0.0.1", "127.255.0.1", "::1"]);
        check(Some(ClosedAddress::Unspecified), &["0.0.0.0", "0.1.2.3", "::"]);
        check(Some(ClosedAddress::LinkLocal), &["169.254.169.254", "fe80::1", "febf::1"]);
        check(
            Some(ClosedAddress::Private),
            &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"],
        );
        check(Some(ClosedAddress::Private), &["fc00::1", "fd00:ec2::254", "fec0::1"]);
        check(Some(ClosedAddress::Multicast), &["224.0.0.1", "239.1.1.1", "255.255.255.255", "ff02::1"]);
        check(Some(ClosedAddress::Metadata), &["168.63.129.16", "100.100.100.200", "192.0.0.192"]);
        check(
            Some(ClosedAddress::Reserved),
            &["192.0.0.1", "198.18.0.1", "240.0.0.1", "100::1", "64:ff9b:1::1", "2001::1"],
        );
    }

    #[test]
    fn an_ipv6_address_is_closed_with_the_ipv4_address_that_it_carries() {
        check(
            Some(ClosedAddress::Loopback),
            &["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"],
        );
        check(
            Some(ClosedAddress::LinkLocal),
            &["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:0:a9fe:a9fe"],
        );
        check(Some(ClosedAddress::Private), &["::ffff:10.0.0.1", "2002:a00:1::1"]);
    }

    #[test]
    fn ranges_hold_addresses_in_every_form() {
        for (range, address, expected) in [
            ("1.2.3.0/24", "1.2.3.4", true),
            ("1.2.3.0/24", "1.2.4.4", false),
            ("1.2.3.4", "1.2.3.4", true),
            ("1.2.3.4", "::ffff:1.2.3.4", true),
            ("1.2.3.4", "64:ff9b::102:304", true),
            ("::ffff:1.2.0.0/112", "1.2.3.4", true),
            ("::ffff:1.2.3.4", "1.2.3.4", true),
            ("2a00::/16", "2a00:1::1", true),
            ("2a00::/16", "1.2.3.4", false),
        ] {
            let parsed = AddressRange::parse(range).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{range} {address}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in
            ["", "1.2.3", "1.2.3.4/33", "example.com", "[::1]", "::1/129", "::ffff:1.2.3.4/80", "1.2.3.4/"]
        {
            assert!(AddressRange::parse(text).is_err(), "{text}");
        }
    }
}
