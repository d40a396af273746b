//! Clients of a [`ToolServer`](crate::ToolServer) in another process: one answers its approval requests, one
//! calls its tools.

mod approval;
mod runner;

pub use self::approval::{ApprovalClient, ApprovalClientError};
pub use self::runner::{ToolResult, ToolRunner, ToolRunnerError};

/// `host` and `port` in the form for URLs.
fn authority(host: &str, port: u16) -> String {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        assert_eq!(authority("::1", 8900), "[::1]:8900");
        assert_eq!(authority("localhost", 8900), "localhost:8900");
        assert_eq!(authority("127.0.0.1", 1), "127.0.0.1:1");
    }
}
