//! Lines of the kernel's log that report a problem. To add one is to add a row to patterns.toml.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::Deserialize;

use crate::monitor::rest_after;

/// A line counts at this level or a more severe one, unless the table says otherwise.
const LEAST_SEVERE_LEVEL: u8 = 4;
/// The kernel may be told to report a stall of an expedited grace period after milliseconds (`rcupdate.rcu_exp_cpu_stall_timeout`). Even
/// with 100 jiffies a second one that took fewer than these was short; the stall that counts is logged after 21 s.
const SHORT_STALL_JIFFIES: u64 = 1000;

/// What a line is evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Class {
    /// Of itself.
    Trouble,
    /// A processor did nothing else for many seconds.
    Stall,
    /// A processor did not even take interrupts.
    HardLockup,
    /// Work of the kernel's own that waits for a processor.
    Workqueue,
    /// An error of the hardware that the hardware could not correct.
    Uncorrected,
    LostGpu,
    GpuError,
}

impl Class {
    /// Whether a counter or flag of the kernel may make a problem of it.
    pub(super) fn has_witnesses(self) -> bool {
        matches!(self, Self::Stall | Self::HardLockup | Self::Workqueue | Self::Uncorrected)
    }
}

/// A row of patterns.toml.
#[derive(Debug, Deserialize)]
pub(super) struct Pattern {
    /// The problem, in messages.
    pub(super) name: String,
    pub(super) class: Class,
    /// One of these must match.
    lines: Vec<String>,
}

/// patterns.toml, which says what each list is.
#[derive(Debug, Default, Deserialize)]
struct Table {
    of_a_user: Vec<String>,
    less_severe: Vec<(u8, String)>,
    harmless: Vec<String>,
    patterns: Vec<Pattern>,
}

// A test reads the same text.
static TABLE: LazyLock<Table> = LazyLock::new(|| toml::from_str(include_str!("patterns.toml")).unwrap_or_default());

/// The pattern of an index that [`find`] has returned.
pub(super) fn pattern(index: usize) -> &'static Pattern {
    &TABLE.patterns[index]
}

/// The index of the first pattern that matches a line of this level.
pub(super) fn find(text: &str, level: u8) -> Option<usize> {
    let is_like = |line: &String| match line.strip_suffix('$') {
        Some(line) => rest_after(text, line) == Some(""),
        None => rest_after(text, line).is_some(),
    };
    let is_level = |(least, line): &(u8, String)| level <= *least && is_like(line);
    let counts = level <= LEAST_SEVERE_LEVEL || TABLE.less_severe.iter().any(is_level);
    let is_of_a_user = TABLE.of_a_user.iter().any(|words| text.contains(words));
    if !counts || is_of_a_user || is_short_stall(text) || TABLE.harmless.iter().any(is_like) {
        return None;
    }
    TABLE.patterns.iter().position(|pattern| pattern.lines.iter().any(is_like))
}

/// Whether it is a line such as `rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 6 jiffies s: 85 root: 0x2/.`.
fn is_short_stall(text: &str) -> bool {
    let stall = text
        .split_once(" detected expedited stalls on CPUs/tasks: ")
        .and_then(|(_, stall)| stall.split_once(" jiffies"));
    let jiffies = stall.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u64>().ok());
    jiffies.is_some_and(|jiffies| jiffies < SHORT_STALL_JIFFIES)
}

/// For how long the work of a line such as `BUG: workqueue lockup - pool cpus=2 node=0 flags=0x0 nice=0 stuck for 338s!` has waited.
pub(super) fn stuck_secs(text: &str) -> Option<u64> {
    text.rsplit_once(" stuck for ")?.1.split_once('s')?.0.parse().ok()
}
