//! Kernels on Jupyter servers.

#[cfg(target_os = "linux")]
mod claims;
mod headers;
mod hostile_servers;
#[cfg(target_os = "linux")]
mod hubs;
mod jupyter_servers;
mod kernels;
mod lost_connections;
mod network_fixture;
mod other_subjects;
#[cfg(target_os = "linux")]
mod pods;
mod server_fixture;
mod session;
mod sites;
