//! Numbers of bytes, for people.

use std::fmt;

/// A number of bytes, in the largest unit that it is a whole number of.
pub(crate) struct ByteSize(pub(crate) u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = self;
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| *bytes > 0 && bytes % (1 << shift) == 0) {
            Some((shift, unit)) => write!(f, "{} {unit}", bytes >> shift),
            None => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_in_the_unit_it_was_meant_in() {
        for (bytes, expected) in [
            (1 << 30, "1 GiB"),
            (3 << 29, "1536 MiB"),
            (5 << 10, "5 KiB"),
            (1000, "1000 bytes"),
            (1 << 50, "1024 TiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), expected);
        }
    }
}
