//! The wall clock: that it was set by more than a little is news, that nothing keeps it right is a warning. Neither makes a
//! node one to be replaced. Pure.

use std::time::Duration;

use jiff::SignedDuration;

use crate::{
    checks::{Check, Question, Reading, Spec},
    clock::Now,
    config::Settings,
    health::{
        ConditionType, Finding, Reason,
        news::{News, Told},
    },
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "clock",
    condition: ConditionType::NodeKernelHealthy,
    doc: "The wall clock: whether it was set by more than a few seconds, and whether anything keeps it synchronised.",
};

/// How often the kernel is asked whether its clock is synchronised.
const EVERY: Duration = Duration::from_mins(10);
/// So seldom at most a step is told: two programs that fight over the clock are one story.
const BETWEEN_NEWS: Duration = Duration::from_mins(10);

/// The clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// By so much; less than nothing: back.
    pub by: SignedDuration,
}

/// The check.
#[derive(Debug)]
pub struct Clock {
    step: Duration,
    unsynchronised_for: Duration,
    due_at: Duration,
    /// Since when nobody has synchronised it, as far as we know (uptime).
    unsynchronised_since: Option<Duration>,
    findings: Vec<Finding>,
    /// Steps that were not told yet: how many, the largest, and from when on they may be.
    steps: u32,
    largest: SignedDuration,
    not_before: Duration,
    told: Option<Told>,
}

impl Clock {
    /// With the operator's thresholds.
    pub fn new(settings: &Settings) -> Self {
        Self {
            step: settings.seconds(SPEC.id, "step_secs"),
            unsynchronised_for: settings.seconds(SPEC.id, "unsynchronised_secs"),
            due_at: Duration::ZERO,
            unsynchronised_since: None,
            findings: Vec::new(),
            steps: 0,
            largest: SignedDuration::ZERO,
            not_before: Duration::ZERO,
            told: None,
        }
    }

    fn stepped(&mut self, step: Step, now: Now) {
        if step.by.unsigned_abs() < self.step {
            return;
        }
        self.steps = self.steps.saturating_add(1);
        if step.by.abs() > self.largest.abs() {
            self.largest = step.by;
        }
        self.tell(now);
    }

    fn tell(&mut self, now: Now) {
        if self.steps == 0 || now.uptime < self.not_before {
            return;
        }
        let way = if self.largest.is_negative() {
            "back"
        } else {
            "forward"
        };
        let by = self.largest.unsigned_abs();
        let by = format!("{}.{} s", by.as_secs(), by.subsec_millis() / 100);
        let note = match self.steps {
            1 => format!("the wall clock was set {way} by {by}"),
            many => format!("the wall clock was set {many} times, by {by} {way} at most"),
        };
        let then = "leases, certificates and tokens are judged by it";
        self.told = Some(Told::new(News::ClockStepped, format!("{note}; {then}")));
        (self.steps, self.largest) = (0, SignedDuration::ZERO);
        self.not_before = now.uptime + BETWEEN_NEWS;
    }

    fn learn(&mut self, synchronised: bool, now: Now) {
        // Before the host was up that long nobody can say.
        let since = (!synchronised).then_some(now.uptime);
        self.unsynchronised_since = since.map(|now| self.unsynchronised_since.unwrap_or(now));
        let lasts = |since| now.uptime.saturating_sub(since) >= self.unsynchronised_for;
        let finding = if self.unsynchronised_since.is_some_and(lasts) {
            let mins = self.unsynchronised_for.as_secs().div_ceil(60);
            Finding {
                reason: Reason::KernelClockUnsynchronised,
                message: format!(
                    "the kernel's clock has not been synchronised for {mins} min or longer: no program that does it (chronyd, systemd-timesyncd, ntpd) runs, or it reaches no server; look at timedatectl"
                ),
            }
        } else {
            Finding {
                reason: Reason::KernelIsHealthy,
                message: "the clock is kept".to_owned(),
            }
        };
        if self.findings.first() != Some(&finding) {
            self.findings = vec![finding];
        }
    }
}

impl Check for Clock {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::ClockStep(step) => self.stepped(*step, now),
            // Not to know is no warning: the helper's absence is said elsewhere.
            Reading::Clock(Some(state)) => self.learn(state.synchronised, now),
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        Some(self.due_at)
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        self.due_at = now.uptime + EVERY;
        self.tell(now);
        Some(Question::Clock)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn told(&mut self) -> Option<Told> {
        self.told.take()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::helper::protocol::ClockState;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_secs(secs),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    fn clock() -> Clock {
        Clock::new(&Settings::default())
    }

    fn step(clock: &mut Clock, millis: i64, secs: u64) -> Option<String> {
        let by = SignedDuration::from_millis(millis);
        clock.take(&Reading::ClockStep(Step { by }), at(secs));
        clock.told().map(|told| told.note)
    }

    #[test]
    fn a_step_is_told_and_a_fight_over_the_clock_is_one_story() {
        let mut clock = clock();
        assert_eq!(step(&mut clock, 4_999, 1), None);
        assert_eq!(step(&mut clock, -1_000, 1), None, "a leap second");
        let told = step(&mut clock, -6_250, 2).unwrap();
        assert!(
            told.starts_with("the wall clock was set back by 6.2 s;"),
            "{told}"
        );
        assert!(told.len() < 1024);
        for secs in 3..500 {
            assert_eq!(
                step(&mut clock, i64::try_from(secs).unwrap() * 1000, secs),
                None
            );
        }
        clock.turn(at(700));
        let told = clock.told().unwrap().note;
        assert!(
            told.starts_with("the wall clock was set 495 times, by 499.0 s forward at most;"),
            "{told}"
        );
        clock.turn(at(2000));
        assert_eq!(clock.told(), None);
        // Whatever comes.
        step(&mut clock, i64::MIN, 3000).unwrap();
    }

    #[test]
    fn not_synchronised_for_long_is_a_warning_and_not_to_know_is_none() {
        let mut clock = clock();
        let say = |clock: &mut Clock, synchronised: Option<bool>, secs| {
            let state = synchronised.map(|synchronised| ClockState { synchronised });
            clock.take(&Reading::Clock(state), at(secs));
            clock.findings().first().map(|finding| finding.reason)
        };
        assert_eq!(say(&mut clock, None, 1), None);
        let good = Some(Reason::KernelIsHealthy);
        assert_eq!(say(&mut clock, Some(false), 100), good);
        assert_eq!(say(&mut clock, Some(false), 3699), good);
        assert_eq!(
            say(&mut clock, Some(false), 3700),
            Some(Reason::KernelClockUnsynchronised)
        );
        assert_eq!(
            say(&mut clock, None, 3800),
            Some(Reason::KernelClockUnsynchronised)
        );
        assert_eq!(say(&mut clock, Some(true), 3900), good);
        assert_eq!(say(&mut clock, Some(false), 4000), good, "it begins anew");
    }
}
