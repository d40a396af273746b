//! Thousands of cells of every kind in one session: each gets its own answer, and the server does not grow.
//!
//! `IPYBOX_SOAK_CELLS` says how many. The kinds and their order are the same in every run of as many cells.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "the figures are what one runs it for")]

mod footprint;
mod kinds;
mod player;
#[path = "../it/support/mod.rs"]
mod support;

use std::time::Instant;

use self::player::Player;

/// Half a minute of a debug build.
const DEFAULT_CELLS: u64 = 1_000;

#[tokio::test]
async fn a_long_session_answers_each_cell_and_leaves_nothing_behind() {
    let cells = std::env::var("IPYBOX_SOAK_CELLS").map_or(DEFAULT_CELLS, |count| count.parse().unwrap());
    let mut player = Player::start().await;
    let begin = Instant::now();
    // Caches fill, and every kind has come.
    let warm = (cells / 10).max(100);
    for number in 0..warm {
        player.play(number).await;
    }
    let before = player.quiet_footprint(None).await;
    for number in warm..cells {
        player.play(number).await;
    }
    let after = player.quiet_footprint(Some(&before)).await;
    eprintln!("{cells} cells in {:.0?}\n{}", begin.elapsed(), player.tally());
    eprintln!("after {warm}: {before:?}\nafter {cells}: {after:?}");
    after.assert_like(&before);
    player.stop().await;
}
