//! Go's `time.Duration` as text, in the form in which the kubelet prints it: `90s` is `1m30s`.

/// Nanoseconds as Go's `Duration.String` prints them.
pub(crate) fn print(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let (unit, per_unit) = match size {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let whole = size / per_unit;
    let width = per_unit.ilog10() as usize;
    let fraction = format!("{:0width$}", size % per_unit);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    if unit != "s" {
        return format!("{sign}{whole}{point}{fraction}{unit}");
    }
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    let seconds = format!("{seconds}{point}{fraction}s");
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}"),
        (0, _) => format!("{sign}{minutes}m{seconds}"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::flags::duration_nanos;

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (text, printed) in [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("2m", "2m0s"),
            ("4h", "4h0m0s"),
            ("36h1s", "36h0m1s"),
            ("100ms", "100ms"),
            ("1500ms", "1.5s"),
            ("1.5us", "1.5µs"),
            ("7ns", "7ns"),
            ("-90s", "-1m30s"),
            ("1h0m0.000000001s", "1h0m0.000000001s"),
        ] {
            assert_eq!(duration_nanos(text).map(print).as_deref(), Some(printed), "{text}");
        }
        assert_eq!(print(i64::MIN), "-2562047h47m16.854775808s");
    }
}
