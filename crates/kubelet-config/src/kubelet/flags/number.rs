//! Go's own readers of numbers, durations, quantities and addresses, with Go's own words for what is wrong: what pflag
//! calls for a flag's value. Checked against real kubelets (`tests/kubelet`).

use std::{fmt::Write as _, net::Ipv6Addr};

use super::value::go_quote;

/// What `strconv` says: the function, what it read, why.
fn not_a_number(function: &str, text: &str, why: &str) -> String {
    format!("strconv.{function}: parsing {}: {why}", go_quote(text))
}

const SYNTAX: &str = "invalid syntax";
const RANGE: &str = "value out of range";

/// `strconv.ParseBool`.
pub(in crate::kubelet) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(not_a_number("ParseBool", text, SYNTAX)),
    }
}

/// `strconv.ParseInt` with base 0: `0x`, `0o`, `0b`, `0` in front and underscores between digits.
pub(in crate::kubelet) fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let error = |why| not_a_number("ParseInt", text, why);
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let limit = 1_u64 << (bits - 1);
    match magnitude(digits, text, bits) {
        Err(Magnitude::Syntax) => Err(error(SYNTAX)),
        Ok(size) if negative && size <= limit => Ok(0_i64.wrapping_sub_unsigned(size)),
        Ok(size) if !negative && size < limit => {
            Ok(i64::try_from(size).expect("below 2^63: the limit is at most that"))
        }
        Err(Magnitude::TooLarge) | Ok(_) => Err(error(RANGE)),
    }
}

enum Magnitude {
    Syntax,
    TooLarge,
}

/// The digits behind the sign; `whole` is the text with it, whose underscores are judged.
fn magnitude(digits: &str, whole: &str, bits: u32) -> Result<u64, Magnitude> {
    let lower = digits.to_ascii_lowercase();
    let (radix, rest) = if let Some(rest) = lower.strip_prefix("0x").filter(|rest| !rest.is_empty()) {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o").filter(|rest| !rest.is_empty()) {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b").filter(|rest| !rest.is_empty()) {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix('0') {
        (8, rest)
    } else {
        (10, lower.as_str())
    };
    if digits.is_empty() {
        return Err(Magnitude::Syntax);
    }
    let mut size = Some(0_u64);
    for letter in rest.chars().filter(|letter| *letter != '_') {
        let digit = letter.to_digit(radix).ok_or(Magnitude::Syntax)?;
        size = size
            .and_then(|size| size.checked_mul(radix.into()))
            .and_then(|size| size.checked_add(digit.into()))
            .filter(|size| bits == 64 || *size < 1 << bits);
        // Go stops at the first digit that does not fit, whatever follows.
        if size.is_none() {
            return Err(Magnitude::TooLarge);
        }
    }
    if rest.contains('_') && !underscores_are_fine(whole) {
        return Err(Magnitude::Syntax);
    }
    size.ok_or(Magnitude::TooLarge)
}

/// `strconv.underscoreOK`: an underscore stands between digits, or between the base's letter and a digit.
fn underscores_are_fine(text: &str) -> bool {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = bare.to_ascii_lowercase();
    let (mut before, digits, hexadecimal) = match lower.get(..2) {
        Some("0x") => ('0', lower.get(2..).unwrap_or_default(), true),
        Some("0o" | "0b") => ('0', lower.get(2..).unwrap_or_default(), false),
        _ => ('^', lower.as_str(), false),
    };
    for letter in digits.chars() {
        let is_digit = letter.is_ascii_digit() || (hexadecimal && letter.is_ascii_hexdigit());
        let kind = match letter {
            _ if is_digit => '0',
            '_' if before == '0' => '_',
            '_' => return false,
            _ if before == '_' => return false,
            _ => '!',
        };
        before = kind;
    }
    before != '_'
}

/// `strconv.ParseUint` with base 10 and 31 bits: a log verbosity.
pub(super) fn parse_level(text: &str) -> Result<u32, String> {
    let error = |why| not_a_number("ParseUint", text, why);
    if text.is_empty() {
        return Err(error(SYNTAX));
    }
    let mut level = 0_u32;
    for letter in text.chars() {
        let digit = letter.to_digit(10).ok_or_else(|| error(SYNTAX))?;
        // Go stops at the first digit that does not fit, whatever follows.
        level = level
            .checked_mul(10)
            .and_then(|level| level.checked_add(digit))
            .filter(|level| *level < 1 << 31)
            .ok_or_else(|| error(RANGE))?;
    }
    Ok(level)
}

/// `time.ParseDuration`, in nanoseconds.
///
/// # Errors
/// Go's words for what is wrong.
pub fn duration_nanos(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", time_quote(text));
    let (negative, mut rest) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // `1.2.3s`: Go's unit would begin at the second dot, and no unit begins with one.
        let (fraction, second_dot) = match fraction.split_once('.') {
            Some((fraction, _)) => (fraction, true),
            None => (fraction, false),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        if second_dot {
            return Err(format!("time: missing unit in duration {}", time_quote(text)));
        }
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", time_quote(text)));
        }
        let scale = unit_nanos(unit)
            .ok_or_else(|| format!("time: unknown unit {} in duration {}", time_quote(unit), time_quote(text)))?;
        let part = amount(whole, fraction, scale).ok_or_else(invalid)?;
        total = total.checked_add(part).filter(|total| *total <= 1 << 63).ok_or_else(invalid)?;
        rest = next;
    }
    if negative {
        return Ok(0_i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).map_err(|_| invalid())
}

/// The `time` package's own quoting: every byte beyond ASCII is escaped.
fn time_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => quoted.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
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
fn amount(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // No unit has more than 13 digits of nanoseconds, so later digits of a fraction cannot count.
    let digits = fraction.get(..fraction.len().min(15)).unwrap_or_default();
    let part = if digits.is_empty() {
        0
    } else {
        let power = 10_u128.pow(u32::try_from(digits.len()).expect("at most 15"));
        u64::try_from(digits.parse::<u128>().ok()? * u128::from(scale) / power).ok()?
    };
    whole.checked_mul(scale)?.checked_add(part).filter(|total| *total <= 1 << 63)
}

/// `resource.ParseQuantity`: a number, perhaps with a fraction, and a suffix.
pub(super) fn check_quantity(text: &str) -> Result<(), String> {
    const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    if text.is_empty() {
        return Err(FORM.to_owned());
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    rest = rest.get(digits(rest)..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.get(digits(fraction)..).unwrap_or_default();
    }
    let suffix = rest;
    rest = rest.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if digits(rest) < rest.len() {
        return Err(FORM.to_owned());
    }
    let known = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i64>().is_ok());
    if known || exponent { Ok(()) } else { Err("unable to parse quantity's suffix".to_owned()) }
}

/// `netutils.ParseIPSloppy`: Go's reading before 1.17, which takes leading zeros for decimal ones.
pub(super) fn is_ip(text: &str) -> bool {
    if !text.contains(':') {
        return sloppy_ipv4(text).is_some();
    }
    let groups: Vec<String> = text
        .split(':')
        .map(|group| {
            if group.contains('.') {
                return sloppy_ipv4(group).unwrap_or_else(|| "?".to_owned());
            }
            let bare = group.trim_start_matches('0');
            if bare.is_empty() && !group.is_empty() { "0".to_owned() } else { bare.to_owned() }
        })
        .collect();
    groups.join(":").parse::<Ipv6Addr>().is_ok()
}

/// The address without its leading zeros.
fn sloppy_ipv4(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 4 {
        return None;
    }
    let octets: Option<Vec<String>> = parts
        .iter()
        .map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let bare = part.trim_start_matches('0');
            let bare = if bare.is_empty() { "0" } else { bare };
            (digits && bare.parse::<u8>().is_ok()).then(|| bare.to_owned())
        })
        .collect();
    Some(octets?.join("."))
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
            assert_eq!(parse_int(text, 32), Ok(value), "{text}");
        }
        for text in ["", "-", "a", "1.5", " 1", "08", "0x", "1_", "_1", "1__0", "0b2", "110m"] {
            let error = parse_int(text, 32).unwrap_err();
            assert!(error.ends_with("invalid syntax"), "{text}: {error}");
        }
        assert_eq!(
            parse_int("2147483648", 32).unwrap_err(),
            r#"strconv.ParseInt: parsing "2147483648": value out of range"#
        );
        assert_eq!(parse_int("9223372036854775807", 64), Ok(i64::MAX));
        assert_eq!(parse_int("-9223372036854775808", 64), Ok(i64::MIN));
        assert!(parse_int("9223372036854775808", 64).is_err());
        assert_eq!(parse_level("10"), Ok(10));
        assert!(parse_level("-1").is_err() && parse_level("0x1").is_err());
        assert!(parse_level("2147483648").is_err());
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
            assert_eq!(duration_nanos(text), Ok(nanos), "{text}");
        }
        for (text, error) in [
            ("1", r#"time: missing unit in duration "1""#),
            ("", r#"time: invalid duration """#),
            ("s", r#"time: invalid duration "s""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("10 s", r#"time: unknown unit " s" in duration "10 s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("9999999h", r#"time: invalid duration "9999999h""#),
        ] {
            assert_eq!(duration_nanos(text).unwrap_err(), error);
        }
    }

    #[test]
    fn quantities_need_a_known_suffix() {
        for text in ["0", "1", "1.5", "64Ki", "500Mi", "200m", "1e3", "1E", "2E6", "-1", "1."] {
            assert_eq!(check_quantity(text), Ok(()), "{text}");
        }
        for text in ["", "abc", "1mb", "1 Gi", "1GiB", "1Mi5", "1KI", "1GB"] {
            assert!(check_quantity(text).is_err(), "{text}");
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
