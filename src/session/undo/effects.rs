//! Effects of cells beside the kernel, which an undo cannot take back.

use std::collections::VecDeque;

/// The number of effects that are remembered.
const MOST_EFFECTS: usize = 500;

/// Something that was done beside the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CellEffect {
    /// A call that may have changed something, in words.
    Call(String),
    /// Packages were installed, in words.
    Installed(String),
    /// The package of this server was generated anew, so that the kernel has to import it again.
    Regenerated(String),
}

/// The newest effects, in their order.
#[derive(Default)]
pub(super) struct EffectLog {
    effects: VecDeque<CellEffect>,
    /// The number of those that are forgotten.
    forgotten: u64,
}

impl EffectLog {
    pub(super) fn add(&mut self, effect: CellEffect) {
        if self.effects.len() == MOST_EFFECTS {
            self.effects.pop_front();
            self.forgotten += 1;
        }
        self.effects.push_back(effect);
    }

    /// The number of effects until now.
    pub(super) fn count(&self) -> u64 {
        self.forgotten + self.effects.len() as u64
    }

    /// Those from this number on, as far as they are remembered. They are not forgotten: they cannot be taken back later
    /// either.
    pub(super) fn since(&self, number: u64) -> Vec<CellEffect> {
        let skipped = usize::try_from(number.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        self.effects.iter().skip(skipped).cloned().collect()
    }
}
