//! The team server: many users by HTTP, each with sessions of their own.

mod actions;
mod admission;
mod approvals;
mod attacks;
mod clients;
mod conformance;
mod hubs;
mod lives;
mod login;
mod packages;
mod records;
mod sandboxes;
mod support;
mod tenants;
mod upstream;
mod upstream_login;
