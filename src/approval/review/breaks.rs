//! The places at which a chain is broken.

/// The place of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinePlace {
    /// The file, by its place in the list.
    pub(super) part: usize,
    /// The line in it, from 1.
    pub(super) line: u64,
}

/// The damage to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakKind {
    Edited,
    Removed,
    Inserted,
    OutOfOrder,
    Truncated,
}

/// A place at which a chain is broken.
#[derive(Debug)]
pub(super) struct ChainBreak {
    /// `None`: the log as a whole.
    pub(super) place: Option<LinePlace>,
    pub(super) kind: BreakKind,
    pub(super) words: String,
}

/// The first breaks, and how many there are.
#[derive(Debug, Default)]
pub(super) struct ChainBreaks {
    pub(super) first: Vec<ChainBreak>,
    pub(super) count: u64,
}

impl LinePlace {
    pub(super) fn line_words(self) -> String {
        format!("line {}", self.line)
    }
}

impl BreakKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Removed => "removed",
            Self::Inserted => "inserted",
            Self::OutOfOrder => "out of order",
            Self::Truncated => "truncated",
        }
    }
}

impl ChainBreaks {
    /// The number of breaks that are kept.
    pub(super) const MOST: usize = 100;

    pub(super) fn add(&mut self, place: LinePlace, kind: BreakKind, words: impl Into<String>) {
        self.push(ChainBreak { place: Some(place), kind, words: words.into() });
    }

    pub(super) fn add_to_all(&mut self, kind: BreakKind, words: String) {
        self.push(ChainBreak { place: None, kind, words });
    }

    fn push(&mut self, found: ChainBreak) {
        self.count += 1;
        if self.first.len() < Self::MOST {
            self.first.push(found);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In the order of the log.
    pub(super) fn sort(&mut self) {
        self.first.sort_by_key(|found| found.place);
    }
}
