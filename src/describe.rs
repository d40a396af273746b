//! Errors in words, for people and models.

use std::error::Error;

/// An error with all its causes, as one text.
pub(crate) fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Some libraries repeat their cause in their own words.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
