//! SOCKS5 (RFC 1928): connections only, without authentication. Names are resolved here (`socks5h`), or by the client
//! if it can, which then needs the address to be allowed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::dial::{DialFailure, ProxyDialer};
use super::idle::ProxyClient;
use super::{SOCKS_VERSION, timely};
use crate::kernels::sandbox::domain::DomainHost;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The codes of replies.
#[derive(Debug, Clone, Copy)]
enum SocksReply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

/// Serves one connection until it ends.
///
/// # Errors
///
/// If the client goes away or does not speak SOCKS5.
pub(super) async fn serve(
    mut client: impl ProxyClient,
    dialer: &ProxyDialer,
    handshake: Duration,
) -> io::Result<()> {
    let (host, port) = match timely(handshake, request(&mut client)).await? {
        Ok(target) => target,
        Err(reply) => return answer(&mut client, reply).await,
    };
    let mut server = match dialer.dial(&host, port).await {
        Ok(server) => server,
        Err(failure) => return answer(&mut client, reply_to(&failure)).await,
    };
    answer(&mut client, SocksReply::Succeeded).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Reads greeting and request: what to connect to, or how to refuse.
async fn request(client: &mut impl ProxyClient) -> io::Result<Result<(DomainHost, u16), SocksReply>> {
    let [version, count] = bytes(client).await?;
    let mut methods = vec![0; count.into()];
    client.read_exact(&mut methods).await?;
    if version != SOCKS_VERSION || !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[SOCKS_VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no SOCKS5 without authentication"));
    }
    client.write_all(&[SOCKS_VERSION, NO_AUTHENTICATION]).await?;

    let [_version, command, _reserved, kind] = bytes(client).await?;
    let host = match kind {
        IPV4 => Some(DomainHost::Address(Ipv4Addr::from(bytes(client).await?).into())),
        IPV6 => Some(DomainHost::Address(Ipv6Addr::from(bytes(client).await?).to_canonical())),
        NAME => {
            let [length] = bytes(client).await?;
            let mut name = vec![0; length.into()];
            client.read_exact(&mut name).await?;
            std::str::from_utf8(&name).ok().and_then(DomainHost::parse)
        }
        _ => return Ok(Err(SocksReply::AddressTypeNotSupported)),
    };
    let port = u16::from_be_bytes(bytes(client).await?);
    if command != CONNECT {
        return Ok(Err(SocksReply::CommandNotSupported));
    }
    // What no host can be called is not allowed.
    Ok(host.filter(|_| port != 0).map(|host| (host, port)).ok_or(SocksReply::NotAllowed))
}

async fn bytes<const N: usize>(client: &mut impl ProxyClient) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn reply_to(failure: &DialFailure) -> SocksReply {
    match failure {
        DialFailure::Refused(_) => SocksReply::NotAllowed,
        DialFailure::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
            SocksReply::ConnectionRefused
        }
        DialFailure::Unreachable { .. } | DialFailure::Unknown { .. } | DialFailure::OwnAddresses(_) => {
            SocksReply::HostUnreachable
        }
    }
}

/// The address that the connection has on this side is nobody's business: it is given as zeros.
async fn answer(client: &mut impl ProxyClient, reply: SocksReply) -> io::Result<()> {
    client.write_all(&[SOCKS_VERSION, reply as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]).await
}
