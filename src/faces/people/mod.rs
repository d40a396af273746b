//! The faces by which people watch a session and answer: the messages between it and them, and a page in the browser. Prompts are
//! `ipybox attach`.

mod call;
pub mod page;
mod waiting_changes;
mod wire;

pub(crate) use self::call::ShownCall;
pub(crate) use self::waiting_changes::{ChangeRemark, SeenChange, WaitingChange, WaitingCopy};
pub use self::wire::{CellAuthor, PersonMessage, SessionMessage};
pub(crate) use self::wire::{GrantOffer, StandingGrant};
pub use crate::approval::named_rows;
pub(crate) use crate::approval::{
    Label, OriginInWords, PastDecision, SettleAction, Target, UserAnswer, argument,
};
