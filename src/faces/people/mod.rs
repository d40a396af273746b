//! How people watch a session and answer: the messages between it and them, and a page in the browser. Prompts are
//! `ipybox attach`.

mod call;
pub mod page;
mod wire;

pub(crate) use self::call::Call;
pub use self::wire::{By, Heard, Said};
pub(crate) use self::wire::{Granted, Offer};
pub use crate::approval::named_rows;
pub(crate) use crate::approval::{Answer, Label, OriginInWords, PastDecision, Target, argument};
