//! Go's readers of numbers, durations and addresses, which pflag calls. Checked against real kubelets (`make flags`).

use std::net::IpAddr;

/// `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// `strconv.ParseInt` with base 0: `0x`, `0o`, `0b`, `0` in front and underscores between digits.
pub(in crate::kubelet) fn parse_int(text: &str, bits: u32) -> Option<i64> {
    let lower = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', _, ..] => (16, lower.get(2..)?),
        [b'0', b'o', _, ..] => (8, lower.get(2..)?),
        [b'0', b'b', _, ..] => (2, lower.get(2..)?),
        [b'0', _, ..] => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    let underscores_are_wrong =
        digits.ends_with('_') || digits.contains("__") || (radix == 10 && digits.starts_with('_'));
    // Rust would take a second sign.
    if underscores_are_wrong || digits.starts_with(['+', '-']) {
        return None;
    }
    let size = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    let value = if text.starts_with('-') { -size } else { size };
    let limit = 1_i128 << (bits - 1);
    if (-limit..limit).contains(&value) { i64::try_from(value).ok() } else { None }
}

/// `strconv.ParseUint` with base 10 and 31 bits: a log verbosity.
pub(super) fn parse_level(text: &str) -> Option<u32> {
    let level: u32 = text.parse().ok().filter(|_| !text.starts_with('+'))?;
    (level < 1 << 31).then_some(level)
}

/// `time.ParseDuration`, in nanoseconds; `None` if Go does not take it.
pub(crate) fn duration_nanos(text: &str) -> Option<i64> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total = total.checked_add(amount(number, unit_nanos(unit)?)?).filter(|total| *total <= 1 << 63)?;
        rest = next;
    }
    if text.starts_with('-') { Some(0_i64.wrapping_sub_unsigned(total)) } else { i64::try_from(total).ok() }
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `whole.fraction` units in nanoseconds; `None` if that does not fit.
fn amount(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    // No unit has more than 13 digits of nanoseconds, so later digits of a fraction cannot count.
    let digits = fraction.get(..fraction.len().min(15))?;
    let value = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok() };
    let part = u128::from(value(digits)?) * u128::from(scale) / 10_u128.pow(u32::try_from(digits.len()).ok()?);
    value(whole)?.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)
}

/// `netutils.ParseIPSloppy`: Go's reading before 1.17, which takes leading zeros for decimal ones.
pub(super) fn is_ip(text: &str) -> bool {
    let bare = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        bare => bare.to_owned(),
    };
    let group = |group: &str| group.split('.').map(bare).collect::<Vec<_>>().join(".");
    text.split(':').map(group).collect::<Vec<_>>().join(":").parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_gos_bases_and_bounds() {
        for (text, value) in [
            ("110", 110),
            ("-1", -1),
            ("+5", 5),
            ("0x1F", 31),
            ("0b11", 3),
            ("0o17", 15),
            ("010", 8),
            ("0", 0),
            ("1_000", 1000),
            ("0x_1", 1),
            ("0_7", 7),
            ("2147483647", i64::from(i32::MAX)),
            ("-2147483648", i64::from(i32::MIN)),
        ] {
            assert_eq!(parse_int(text, 32), Some(value), "{text}");
        }
        for text in
            ["", "-", "a", "1.5", " 1", "08", "0x", "1_", "_1", "1__0", "0b2", "110m", "--1", "0x+1", "2147483648"]
        {
            assert_eq!(parse_int(text, 32), None, "{text}");
        }
        assert_eq!(parse_int("9223372036854775807", 64), Some(i64::MAX));
        assert_eq!(parse_int("-9223372036854775808", 64), Some(i64::MIN));
        assert_eq!(parse_int("9223372036854775808", 64), None);
        assert_eq!(parse_level("10"), Some(10));
        for text in ["-1", "+1", "0x1", "2147483648", ""] {
            assert_eq!(parse_level(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("10s", 10_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("-1m", -60_000_000_000),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("100ms", 100_000_000),
        ] {
            assert_eq!(duration_nanos(text), Some(nanos), "{text}");
        }
        for text in ["1", "", "-", "s", "1d", "10 s", ".s", "9999999h", "1.2.3s", "1s1"] {
            assert_eq!(duration_nanos(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_may_have_leading_zeros() {
        for text in ["10.0.0.7", "010.0.0.7", "::", "fe80::1", "0001::", "::ffff:010.0.0.1"] {
            assert!(is_ip(text), "{text}");
        }
        for text in ["", "10.0.0", "10.0.0.256", "10.0.0.7/24", "a", ":::", "fe80::1%eth0", "::1.2.3"] {
            assert!(!is_ip(text), "{text}");
        }
    }
}
