//! ipybox
fn main() {}
