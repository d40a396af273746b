//! The tool server: that of a session, and the standalone one.

mod raw_requests;
mod standalone;
mod standalone_approval;
