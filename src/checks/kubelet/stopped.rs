//! What is told of a kubelet that a stop job ended: by whose will that was, and when it is to be back.

use std::time::Duration;

use super::{
    Assessment, JobKind, Kubelet, Life, Tie,
    assess::found,
    dependencies::{Other, Standing},
    life::Cause,
};
use crate::{
    clock::Now,
    health::{Reason, Status},
};

/// ` with a.service (BindsTo=a.service), and that one with b.service (BindsTo=b.service)`.
fn with(chain: &[&Other]) -> String {
    let names = chain.iter().map(|other| {
        let (unit, tie) = (&other.dependency.unit, other.dependency.tie.as_str());
        format!(" with {unit} ({tie}={unit})")
    });
    names.collect::<Vec<_>>().join(", and that one")
}

impl Kubelet {
    /// When a kubelet that was stopped with another unit must be back (uptime).
    pub(super) fn back_is_due_at(&self) -> Option<Duration> {
        match &self.life {
            Life::Ended(ended) if ended.cause == Cause::Stopped => {}
            _ => return None,
        }
        match self.dependencies.behind().last()?.standing() {
            Standing::Due { since, .. } => Some(since + self.terms.start_grace),
            Standing::Willed => None,
        }
    }

    /// It ended by a stop job.
    pub(super) fn assess_stopped(&self, who: &str, now: Now) -> Assessment {
        let (name, grace) = (&self.unit_name, self.terms.start_grace);
        let chain = self.dependencies.behind();
        let Some(other) = chain.last() else {
            return found(
                Reason::KubeletStoppedByOperator,
                format!("{name}: {who} was stopped by a stop job of systemd's"),
            );
        };
        let unit = &other.dependency.unit;
        let with = format!("{name}: {who} was stopped by systemd{}", with(&chain));
        match other.standing() {
            Standing::Willed => {
                let what = match other.parting() {
                    JobKind::Start => "start",
                    _ => "stop",
                };
                found(
                    Reason::KubeletStoppedByOperator,
                    format!("{with}, for which there was a {what} job"),
                )
            }
            Standing::Due { since, is_back } => {
                let became = match (is_back, other.dependency.tie) {
                    (true, Tie::Conflicts) => "ended",
                    (true, _) => "was active again",
                    (false, _) => "ended by itself",
                };
                let secs = grace.as_secs();
                if now.uptime < since + grace {
                    let text =
                        format!("{with}, and is to be back within {secs} s since {unit} {became}");
                    return found(Reason::KubeletAwaitsDependency, text);
                }
                let text = format!(
                    "{with}, and has not come back within {secs} s since {unit} {became}: systemctl start {name}"
                );
                found(Reason::KubeletStoppedWithDependency, text)
            }
        }
    }

    /// The unit is down, and we were not there when it went: a stop and a clean exit leave the same traces.
    pub(super) fn assess_ended_unseen(&self, before: Option<Reason>, now: Now) -> Assessment {
        let name = &self.unit_name;
        let (stopped, awaits) = (
            Reason::KubeletStoppedByOperator,
            Reason::KubeletAwaitsDependency,
        );
        match before {
            Some(reason) if reason == stopped => found(
                stopped,
                format!("{name} was stopped by a stop job of systemd's"),
            ),
            // Which one it was is forgotten: a unit that it depends on and that is down may be down by somebody's will.
            Some(reason) if [awaits, Reason::KubeletStoppedWithDependency].contains(&reason) => {
                let all_allow = self.dependencies.all_allow();
                let grace = self.terms.start_grace;
                let is_late = self.absent_since.is_some_and(|at| now.uptime >= at + grace);
                let with = format!("{name} was stopped by systemd with a unit that it depends on");
                if reason.status() == Status::False || (all_allow && is_late) {
                    let text = format!("{with}, and has not come back: systemctl start {name}");
                    found(Reason::KubeletStoppedWithDependency, text)
                } else {
                    found(awaits, format!("{with}, and has not come back yet"))
                }
            }
            _ => found(
                Reason::KubeletNotFound,
                format!(
                    "{name} is not running; it ended before nodevigil watched it, so whether it was stopped or exited is not known"
                ),
            ),
        }
    }
}
