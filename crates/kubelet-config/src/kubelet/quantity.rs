//! Kubernetes' resource quantities: `100Mi`, `1.5Gi`, `500m`, `1e9`; k8s.io/apimachinery v0.36.3 `pkg/api/resource`.

/// An amount, to fifteen digits.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Quantity(f64);

impl Quantity {
    #[expect(clippy::cast_precision_loss, reason = "bytes and processes of a machine are less than 2⁵³")]
    pub(crate) fn whole(amount: u64) -> Self {
        Self(amount as f64)
    }

    pub(crate) fn amount(self) -> f64 {
        self.0
    }

    /// The amount in whole units, for example bytes, rounded up; bounded by an `i64`.
    #[expect(clippy::cast_possible_truncation, reason = "the cast bounds it")]
    pub(crate) fn value(self) -> i64 {
        self.0.ceil() as i64
    }
}

/// Suffixes from 10⁻⁹ on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Suffixes from 2¹⁰ on, each 1024 times the one before.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Reads a quantity; `None` if the kubelet would not take it.
pub(crate) fn parse(text: &str) -> Option<Quantity> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    // To the kubelet it is zero without any digit, unless it is less than its smallest unit.
    let is_bare = matches!(number, "" | ".") && !text.is_empty();
    let number = if is_bare { "0" } else { number };
    let amount: f64 = if let Some((power, _)) = (1..).zip(BINARY).find(|(_, binary)| *binary == suffix) {
        number.parse::<f64>().ok()? * 1024_f64.powi(power)
    } else {
        let decimal = (-3..).zip(DECIMAL).find(|(_, decimal)| *decimal == suffix);
        let exponent: i32 = match decimal {
            Some((power, _)) => 3 * power,
            None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        if is_bare && exponent < -9 {
            return None;
        }
        format!("{number}e{exponent}").parse().ok()?
    };
    Some(Quantity(if text.starts_with('-') { -amount } else { amount }))
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
            (".", 0),
            ("e3", 0),
            ("e-9", 0),
            ("100Mi", 104_857_600),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("0.1Ki", 103),
            ("500m", 1),
            ("1500m", 2),
            ("1n", 1),
            ("-1500m", -1),
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
        for text in [
            "", "1 Gi", " 1", "1gi", "1Kb", "1KiB", "1KB", "K", "1K", "1e", "1e+", "e-10", "1.2.3", "10%", "memory",
            "1mm",
        ] {
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
