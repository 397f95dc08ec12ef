//! Writes samples down, in OpenMetrics 1.0 or in the older text format of Prometheus.
//!
//! The older one is for `node_exporter`'s textfile collector, and for scrapers that ask for `text/plain`: it has no units,
//! no info, no end mark, and calls a counter by its sample's name.

use std::{fmt::Write as _, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{
    family::{Family, Kind},
    histogram::{BOUNDS, Histogram},
};

/// How an exposition is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4.
    Text,
}

impl Format {
    /// The answer's `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The samples of one family. Its head is written with the first, so that a family without samples is not there at all.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    out: &'a mut String,
    family: &'static Family,
    format: Format,
    has_head: bool,
}

impl<'a> Samples<'a> {
    pub(super) fn new(out: &'a mut String, family: &'static Family, format: Format) -> Self {
        Self {
            out,
            family,
            format,
            has_head: false,
        }
    }

    /// A whole number; `labels` are the values, in the family's order.
    pub(super) fn number(&mut self, labels: &[&str], value: u64) {
        let suffix = self.family.kind.suffix();
        self.begin(suffix, labels, None);
        let _ = writeln!(self.out, " {value}");
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, labels: &[&str], value: bool) {
        self.number(labels, u64::from(value));
    }

    /// An info: there is nothing but its labels.
    pub(super) fn info(&mut self, labels: &[&str]) {
        self.number(labels, 1);
    }

    /// So many seconds.
    pub(super) fn seconds(&mut self, labels: &[&str], value: Duration) {
        let suffix = self.family.kind.suffix();
        self.begin(suffix, labels, None);
        let _ = writeln!(
            self.out,
            " {}.{:06}",
            value.as_secs(),
            value.subsec_micros()
        );
    }

    /// So many seconds, which may be less than none.
    pub(super) fn offset(&mut self, labels: &[&str], value: SignedDuration) {
        self.begin(self.family.kind.suffix(), labels, None);
        let _ = writeln!(self.out, " {:.3}", value.as_secs_f64());
    }

    /// A moment, in seconds since 1970.
    pub(super) fn moment(&mut self, labels: &[&str], at: Timestamp) {
        // Before 1970 there is no moment of ours; a clock that says so is wrong, and zero says it as well.
        let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
        self.seconds(labels, Duration::from_millis(millis));
    }

    /// A histogram; one that is empty is left out.
    pub(super) fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let count = histogram.count();
        if count == 0 {
            return;
        }
        for ((open_metrics, text, _), value) in BOUNDS.iter().zip(histogram.cumulative()) {
            let bound = match self.format {
                Format::OpenMetrics => open_metrics,
                Format::Text => text,
            };
            self.begin("_bucket", labels, Some(bound));
            let _ = writeln!(self.out, " {value}");
        }
        self.begin("_bucket", labels, Some("+Inf"));
        let _ = writeln!(self.out, " {count}");
        self.begin("_count", labels, None);
        let _ = writeln!(self.out, " {count}");
        let sum = histogram.sum();
        self.begin("_sum", labels, None);
        let _ = writeln!(self.out, " {}.{:06}", sum.as_secs(), sum.subsec_micros());
    }

    fn begin(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>) {
        debug_assert_eq!(
            labels.len(),
            self.family.labels.len(),
            "{}",
            self.family.name
        );
        if !self.has_head {
            self.has_head = true;
            self.head();
        }
        self.out.push_str(self.family.name);
        self.out.push_str(suffix);
        let names = self.family.labels.iter().map(|label| label.name());
        let own = names.zip(labels.iter().copied());
        let mut separator = '{';
        for (name, value) in own.chain(bound.map(|bound| ("le", bound))) {
            self.out.push(separator);
            separator = ',';
            let _ = write!(self.out, "{name}=\"");
            escape(self.out, value);
            self.out.push('"');
        }
        if separator == ',' {
            self.out.push('}');
        }
    }

    fn head(&mut self) {
        let Family {
            name,
            kind,
            unit,
            help,
            ..
        } = self.family;
        let word = kind.as_str();
        let _ = match (self.format, kind) {
            (Format::OpenMetrics, _) => {
                let _ = writeln!(self.out, "# TYPE {name} {word}");
                if let Some(unit) = unit {
                    let _ = writeln!(self.out, "# UNIT {name} {unit}");
                }
                writeln!(self.out, "# HELP {name} {help}")
            }
            (Format::Text, Kind::Info) => {
                writeln!(
                    self.out,
                    "# HELP {name}_info {help}\n# TYPE {name}_info gauge"
                )
            }
            (Format::Text, _) => {
                let suffix = kind.suffix();
                writeln!(
                    self.out,
                    "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {word}"
                )
            }
        };
    }
}

/// A label's value: both formats escape the same three.
fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}
