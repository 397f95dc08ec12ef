//! Kubernetes' resource quantities: `100Mi`, `1.5Gi`, `500m`, `1e9`.
//!
//! Read from k8s.io/apimachinery v0.36.3 `pkg/api/resource`: a value has steps of one billionth, what is finer is
//! rounded away from zero.

/// An amount, in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: i128,
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// A whole amount.
    pub fn whole(amount: u64) -> Self {
        Self { nanos: i128::from(amount) * NANO }
    }

    /// The amount in whole units, for example bytes, rounded away from zero; bounded by an `i64`.
    pub fn value(self) -> i64 {
        let away = if self.nanos < 0 { 1 - NANO } else { NANO - 1 };
        let rounded = (self.nanos.saturating_add(away)) / NANO;
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Reads a quantity; `None` if the kubelet would not take it.
pub fn parse(text: &str) -> Option<Quantity> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Without any digit it is zero.
    if fraction.contains('.') || text.is_empty() {
        return None;
    }
    let (base, exponent) = suffix_of(suffix)?;
    let magnitude = scaled(whole, fraction, base, exponent);
    Some(Quantity { nanos: if is_negative { -magnitude } else { magnitude } })
}

/// What a suffix multiplies by: the base, 2 or 10, and its power.
fn suffix_of(suffix: &str) -> Option<(u8, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (10, exponent.parse().ok()?)
        }
    })
}

/// `whole.fraction * base ^ exponent` in billionths, rounded up, at most `i64::MAX` units.
fn scaled(whole: &str, fraction: &str, base: u8, exponent: i32) -> i128 {
    let most = i128::from(i64::MAX) * NANO;
    let digits = whole.trim_start_matches('0').to_owned() + fraction;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // Digits beyond the 20th are worth less than a step of what they are rounded to.
    let (kept, cut) = digits.split_at(digits.len().min(20));
    let lost = i32::try_from(cut.len()).unwrap_or(i32::MAX);
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let mut value: i128 = kept.parse().unwrap_or(most);
    let mut rounds_up = cut.bytes().any(|byte| byte != b'0');
    let mut power = lost.saturating_sub(places).saturating_add(9);
    if base == 2 {
        value = value.saturating_mul(1 << exponent.clamp(0, 60));
    } else {
        power = power.saturating_add(exponent);
    }
    for _ in 0..power.clamp(0, 60) {
        value = value.saturating_mul(10);
    }
    for _ in 0..power.saturating_neg().clamp(0, 60) {
        rounds_up |= value % 10 != 0;
        value /= 10;
    }
    value.saturating_add(i128::from(rounds_up)).min(most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Option<i64> {
        parse(text).map(Quantity::value)
    }

    #[test]
    fn suffixes_fractions_and_exponents_count() {
        for (text, amount) in [
            ("0", 0),
            ("Mi", 0),
            ("-", 0),
            ("e3", 0),
            ("100Mi", 104_857_600),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("0.1Ki", 103),
            ("500m", 1),
            ("1500m", 2),
            ("1n", 1),
            ("-1500m", -2),
            ("1G", 1_000_000_000),
            ("1k", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("5e-1", 1),
            ("12e+2", 1200),
            (".5", 1),
            ("1.", 1),
            ("+7", 7),
            ("007", 7),
            ("100Ei", i64::MAX),
            ("99999999999999999999999999", i64::MAX),
            ("0.0000000000000000000000000000000001Mi", 1),
        ] {
            assert_eq!(value(text), Some(amount), "{text}");
        }
        assert!(parse("1Gi") > parse("1G"));
        assert!(parse("100m").unwrap() < parse("0.2").unwrap());
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in
            ["", "1 Gi", " 1", "1gi", "1Kb", "1KiB", "1KB", "K", "1K", "1e", "1e+", "1.2.3", "10%", "memory", "1mm"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-+]?[0-9.]{0,60}([a-zA-Z%]{0,3}|[eE][-+]?[0-9]{0,12})") {
            let _ = value(&text);
        }
    }
}
