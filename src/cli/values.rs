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

/// The same, or 0.
pub(super) fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

/// A number of processors, which may be a part of one.
pub(super) fn processors(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=100_000.0).contains(&number) {
        Ok(number)
    } else {
        Err("a number of processors is 0.01 or more, like `2` or `0.5`".to_owned())
    }
}

/// An object in JSON.
pub(super) fn object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("not an object in JSON, like `{{\"name\": 1}}`: {error}"))
}

/// A positive number of seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number".to_owned())?;
    positive(seconds).ok_or_else(|| "not a positive number of seconds".to_owned())
}

/// A duration of days too: a number with `s`, `m`, `h` or `d`.
#[cfg(feature = "team")]
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) if days > 0 => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        _ => duration(text),
    }
}

/// A duration: a number with `s`, `m` or `h`; seconds without.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((end, 's')) => (&text[..end], 1.0),
        Some((end, 'm')) => (&text[..end], 60.0),
        Some((end, 'h')) => (&text[..end], 3600.0),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().map_err(|_| "not a duration such as 30m, 90s or 2h".to_owned())?;
    positive(number * unit).ok_or_else(|| "not a positive duration".to_owned())
}

fn positive(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero())
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

    #[test]
    fn processors_are_counted_in_parts() {
        assert_eq!([processors("2"), processors("0.5")], [Ok(2.0), Ok(0.5)]);
        for wrong in ["", "0", "-1", "0.001", "inf", "NaN", "two"] {
            assert!(processors(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        let check = |text, seconds| assert_eq!(duration(text).unwrap(), Duration::from_secs(seconds));
        check("90", 90);
        check("90s", 90);
        check("30m", 1800);
        check("1.5h", 5400);
        for wrong in ["", "m", "0", "-1m", "1d", "é"] {
            duration(wrong).unwrap_err();
        }
    }
}
