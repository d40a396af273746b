//! Numbers, compared by value and not by notation.

use std::cmp::Ordering;

use serde_json::Number;

/// The floats between these are whole numbers that an `i128` holds, or have a fraction.
const EXACT: f64 = 1e38;

/// `left` against `right`, without the rounding that a conversion of large integers to floats would bring.
pub(in crate::approval) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    if let Some(integer) = number.as_i128() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    // A float below the limit and without a fraction has an exact value as integer.
    #[allow(clippy::cast_possible_truncation, reason = "checked just before")]
    (float.fract() == 0.0 && float.abs() < EXACT).then_some(float as i128)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{self, Equal, Greater, Less};

    #[track_caller]
    fn check(left: &str, right: &str, expected: Ordering) {
        let number = |text: &str| serde_json::from_str(text).unwrap();
        assert_eq!(super::compare(&number(left), &number(right)), Some(expected), "{left} {right}");
        assert_eq!(super::compare(&number(right), &number(left)), Some(expected.reverse()), "{right} {left}");
    }

    #[test]
    fn numbers_compare_by_value() {
        check("1", "1.0", Equal);
        check("-0.0", "0", Equal);
        check("1e2", "100", Equal);
        check("0.5", "1", Less);
        check("-3", "-2.5", Less);
        check("1e300", "1e301", Less);
    }

    #[test]
    fn large_integers_are_not_rounded() {
        check("9007199254740993", "9007199254740992.0", Greater);
        check("18446744073709551615", "18446744073709551614", Greater);
        check("18446744073709551615", "18446744073709551616.0", Less);
    }
}
