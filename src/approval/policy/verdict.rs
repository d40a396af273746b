//! Three-valued logic: a condition holds, fails, or is in doubt.

/// Whether a rule or a part of it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleVerdict {
    Holds,
    Fails,
    InDoubt,
}

impl RuleVerdict {
    pub(super) fn of(is_so: bool) -> Self {
        if is_so { Self::Holds } else { Self::Fails }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Holds => Self::Fails,
            Self::Fails => Self::Holds,
            Self::InDoubt => Self::InDoubt,
        }
    }

    /// Holds if all of `parts` do; fails if one fails.
    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut verdict = Self::Holds;
        for part in parts {
            match part {
                Self::Holds => {}
                Self::Fails => return Self::Fails,
                Self::InDoubt => verdict = Self::InDoubt,
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::RuleVerdict::{self, Fails, Holds, InDoubt};

    fn check<const N: usize>(parts: [RuleVerdict; N], expected: RuleVerdict) {
        assert_eq!(RuleVerdict::all(parts), expected);
    }

    #[test]
    fn doubt_matters_only_where_nothing_fails() {
        check([], Holds);
        check([Holds, Holds], Holds);
        check([Holds, InDoubt], InDoubt);
        check([InDoubt, Fails, Holds], Fails);
    }

    #[test]
    fn negation_removes_no_doubt() {
        assert_eq!([Holds, Fails, InDoubt].map(RuleVerdict::negated), [Fails, Holds, InDoubt]);
    }
}
