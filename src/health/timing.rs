//! When a reason enters and when it leaves, as data: the checks count by it, the engine decides by it, the documents say it.

use std::{fmt, time::Duration};

use super::Reason;

/// When a reason is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// The kernel or systemd says so, or it is somebody's will: at once, whatever else is going on.
    AtOnce,
    /// A file says so: as soon as it was read, but not while something holds, and within an hour of such trouble not before it has lasted.
    WhenRead,
    /// So many bad samples among the last ones; then as [`Enter::WhenRead`].
    Sampled(Samples),
    /// It has been so for that long; then as [`Enter::WhenRead`].
    After(Duration),
}

/// N of the last M.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Samples {
    /// So many bad ones …
    pub bad: u32,
    /// … among so many, at most 32.
    pub of: u32,
    /// What is sampled, in the plural.
    pub what: &'static str,
}

/// When a reason is no longer told, once its cause is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// As soon as the check says something else.
    AtOnce,
    /// When the check says something else, but not within the minimum hold.
    MinimumHold,
    /// As soon as the check says something else, and at the latest after that time, when it becomes a problem.
    Within(Duration),
    /// After the healthy spell.
    HealthySpell,
    /// As soon as the same check names another problem in its place; otherwise after the healthy spell.
    Refined,
    /// As soon as the same check names one of these, which say more of the same; otherwise after the healthy spell.
    RefinedBy(&'static [Reason]),
}

impl Enter {
    /// Whether neither damping nor a hold of somebody's keeps it back.
    pub fn is_fact(self) -> bool {
        self == Self::AtOnce
    }
}

impl fmt::Display for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce => write!(f, "at once"),
            Self::WhenRead => write!(f, "when the files that say so are read"),
            Self::Sampled(Samples { bad, of, what }) if bad == of => {
                write!(f, "after {bad} {what} in a row")
            }
            Self::Sampled(Samples { bad, of, what }) => write!(f, "after {bad} of {of} {what}"),
            Self::After(time) => write!(f, "after {} s", time.as_secs()),
        }
    }
}

impl fmt::Display for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce => write!(f, "at once"),
            Self::MinimumHold => write!(f, "at once, but not within the minimum hold"),
            Self::Within(time) => {
                write!(f, "at once, for a problem after {} s", time.as_secs())
            }
            Self::HealthySpell => write!(f, "after the healthy spell"),
            Self::Refined => write!(
                f,
                "at once for a problem that says more, else after the healthy spell"
            ),
            Self::RefinedBy(reasons) => {
                let names: Vec<_> = reasons.iter().map(|reason| reason.as_str()).collect();
                let names = names.join(", ");
                write!(f, "at once for {names}, else after the healthy spell")
            }
        }
    }
}

/// Counts samples as [`Samples`] has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The last samples, the newest in the lowest bit; 1 is a bad one.
    bits: u32,
}

impl Window {
    /// Takes a sample in.
    pub fn push(&mut self, bad: bool) {
        self.bits = self.bits << 1 | u32::from(bad);
    }

    /// Whether enough of the last samples were bad.
    pub fn is_full(self, samples: Samples) -> bool {
        let seen = u32::MAX >> (32 - samples.of.clamp(1, 32));
        (self.bits & seen).count_ones() >= samples.bad
    }

    /// Bad samples since the last good one; it stops counting at 32.
    pub fn in_a_row(self) -> u32 {
        self.bits.trailing_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_the_last_samples_only() {
        let three_of_five = Samples {
            bad: 3,
            of: 5,
            what: "probes",
        };
        let mut window = Window::default();
        for (bad, full) in [
            (true, false),
            (true, false),
            (false, false),
            (false, false),
            (true, true), // the first of them is the fifth last
            (false, false),
            (true, false),
            (true, true),
        ] {
            window.push(bad);
            assert_eq!(window.is_full(three_of_five), full, "{window:?}");
        }
        assert_eq!(window.in_a_row(), 2);
        for _ in 0..100 {
            window.push(true);
        }
        assert_eq!(window.in_a_row(), 32);
        assert_eq!(
            Enter::Sampled(three_of_five).to_string(),
            "after 3 of 5 probes"
        );
    }
}
