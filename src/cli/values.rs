//! Sizes and times as users write them.

use std::time::Duration;

/// Reads a number of bytes: `2G`, `512M`, `1GiB`, `1073741824`. Units are multiples of 1024, in any case.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("a size is a whole number with or without K, M, G or T, like `2G`".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "a size begins with a whole number, like `2G`".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(0) => Err("it must be more than nothing".to_owned()),
        // What setrlimit takes.
        Some(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err("it is more than any machine has".to_owned()),
    }
}

/// A positive number of seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a positive number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_multiples() {
        for (text, expected) in [
            ("1", 1),
            ("2k", 2 << 10),
            ("512M", 512 << 20),
            ("1 GiB", 1 << 30),
            ("1gb", 1 << 30),
            ("3TiB", 3 << 40),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "G", "-1", "+1", "1.5G", "1X", "1 G B", "0", "0G", "99999999T", "18446744073709551616"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
