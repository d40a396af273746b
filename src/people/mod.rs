//! What passes between a session and the people who watch it and answer: at prompts, and on the page.

mod call;
mod wire;

pub(crate) use self::call::{Behind, Call};
pub use self::wire::{By, Heard, Said};
pub(crate) use self::wire::{Decision, Granted, Offer};
pub use crate::approval::named_rows;
pub(crate) use crate::approval::{Answer, Label, argument};
