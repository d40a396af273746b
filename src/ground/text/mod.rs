//! Texts for people and models: errors in words, names that were meant, text from outside made safe to show. Pure.

mod cell_id;
mod coloured;
mod describe;
mod emphasis;
mod halves;
mod line_diff;
mod nearest;
mod plain;
mod printed;
mod secrets;
pub(crate) mod visible;

pub(crate) use self::cell_id::{cell_id, cell_number};
pub(crate) use self::coloured::ColouredText;
pub use self::describe::describe;
pub(crate) use self::describe::{backticked, first_few, listed, quoted, readable, rfc3339, without_user};
pub use self::emphasis::Emphasis;
pub(crate) use self::halves::{replace_lone_surrogates, unfinished_character};
pub(crate) use self::line_diff::line_diff;
pub(crate) use self::nearest::nearest;
pub use self::plain::one_line;
pub(crate) use self::plain::{EscapeSequence, plain, sequence, shortened};
pub use self::printed::printed;
pub(crate) use self::secrets::{OutputBeginning, Redactor, Secrets};
