//! `ipybox search`: prints its answer on stdout.

use std::io::Write as _;

use anyhow::Context as _;
use ipybox::{SearchQuery, search, state_directory};

use super::args::SearchArgs;

pub(super) fn run(args: SearchArgs) -> anyhow::Result<()> {
    let mut query = SearchQuery::new(args.query.join(" "));
    query.server = args.server;
    query.limit = args.limit;
    query.detail = args.detail.into();
    let state = state_directory(&args.workspace, args.state_dir)?;
    let answer = search(&state, &query)?;
    writeln!(std::io::stdout(), "{answer}").context("print the answer")
}
