//! The faces by which people watch a session and answer: the messages between it and them, and a page in the browser. Prompts are
//! `ipybox attach`.

mod call;
pub mod page;
mod wire;

pub(crate) use self::call::ShownCall;
pub use self::wire::{CellAuthor, Heard, Said};
pub(crate) use self::wire::{GrantOffer, Granted};
pub use crate::approval::named_rows;
pub(crate) use crate::approval::{Answer, Label, OriginInWords, PastDecision, Target, argument};
