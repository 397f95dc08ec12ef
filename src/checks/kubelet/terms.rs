//! The thresholds of the kubelet's check.

use std::time::Duration;

use super::CAUSE_WAIT;
use crate::config::Settings;

/// How long what may last, and how often it may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Until a young kubelet answers.
    pub start_grace: Duration,
    /// Until systemd has said how one ended.
    pub cause_wait: Duration,
    /// Until one that is to end has ended.
    pub stop_grace: Duration,
    /// So many ends …
    pub crash_loop_ends: usize,
    /// … within that time are a crash loop.
    pub crash_loop_within: Duration,
}

impl Terms {
    /// As the operator wants them.
    pub fn of(settings: &Settings) -> Self {
        let seconds = |name| settings.seconds("kubelet", name);
        let ends = settings.number("kubelet", "crash_loop_ends");
        Self {
            start_grace: seconds("start_grace_secs"),
            cause_wait: CAUSE_WAIT,
            stop_grace: seconds("stop_grace_secs"),
            crash_loop_ends: usize::try_from(ends).unwrap_or(usize::MAX),
            crash_loop_within: seconds("crash_loop_within_secs"),
        }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::of(&Settings::default())
    }
}
