//! The units on which the kubelet's depends: whether a stop of the kubelet followed from what became of one of them, and
//! whether that was somebody's will.
//!
//! systemd stops the kubelet with another unit in two ways. A stop job for the other unit (or a start job, if the two exclude
//! each other) brings one for the kubelet in the same transaction, whose first job has the lowest number. And a unit that the
//! kubelet is bound to ends by itself: then systemd makes a stop job for the kubelet alone, just after that.

use std::{collections::BTreeMap, time::Duration};

use super::{Assessment, JobKind, Kubelet, Life, MAX_JOBS, Sign, Unit, assess::found, life::Cause};
use crate::{
    clock::Now,
    health::{Reason, Status},
};

/// How many units are remembered at most.
pub const MAX_DEPENDENCIES: usize = 8;
/// What belongs together lies no further apart: systemd's signals come in one stream, each a moment after its cause.
const TOGETHER: Duration = Duration::from_secs(1);

/// How the kubelet's unit depends on another one: the setting's name, as in systemd.unit(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// It is stopped as well when the other one ends, however that comes.
    BindsTo,
    /// It is stopped with the other one.
    Requires,
    /// It is stopped with the other one, which must be there first.
    Requisite,
    /// It is stopped and restarted with the other one.
    PartOf,
    /// It is stopped with the other one.
    StopPropagatedFrom,
    /// It is stopped when the other one is started.
    Conflicts,
}

impl Tie {
    /// The setting's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BindsTo => "BindsTo",
            Self::Requires => "Requires",
            Self::Requisite => "Requisite",
            Self::PartOf => "PartOf",
            Self::StopPropagatedFrom => "StopPropagatedFrom",
            Self::Conflicts => "Conflicts",
        }
    }
}

/// A unit on which the kubelet's depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Its name.
    pub unit: String,
    /// How.
    pub tie: Tie,
}

/// A job, and when it was announced (uptime). Numbers grow within a transaction and from one to the next.
type Announced = (u32, Duration);

/// What is known of a unit on which the kubelet's depends.
#[derive(Debug)]
struct Other {
    dependency: Dependency,
    /// Whether the kubelet may run beside it as it is: it is active, or not active if the two exclude each other.
    allows: Option<bool>,
    jobs: BTreeMap<u32, (JobKind, Duration)>,
    /// The last job by which it was to stop allowing it.
    asked: Option<Announced>,
    /// Whether it is by such a job that it does not allow it.
    by_will: bool,
    /// When it ceased to allow it last, and when it allowed it again for the first time after the kubelet's end (uptime).
    left: Option<Duration>,
    back: Option<Duration>,
}

impl Other {
    fn new(dependency: Dependency) -> Self {
        Self {
            dependency,
            allows: None,
            jobs: BTreeMap::new(),
            asked: None,
            by_will: false,
            left: None,
            back: None,
        }
    }

    /// The kind of job by which it ceases to allow the kubelet.
    fn parting(&self) -> JobKind {
        match self.dependency.tie {
            Tie::Conflicts => JobKind::Start,
            _ => JobKind::Stop,
        }
    }

    fn said(&mut self, sign: &Sign, kubelet_has_ended: bool, uptime: Duration) {
        match sign {
            Sign::Unit(unit) => self.learn(unit, kubelet_has_ended, uptime),
            Sign::Job(id, kind) => {
                let announced = self.jobs.get(id).map_or(uptime, |(_, at)| *at);
                self.jobs.insert(*id, (*kind, announced));
                while self.jobs.len() > MAX_JOBS {
                    self.jobs.pop_first();
                }
                if *kind == self.parting() {
                    self.was_asked((*id, announced));
                }
            }
            Sign::JobDone(id) => {
                // Done before its type could be read: where it left the unit tells.
                if let Some((JobKind::Unasked, announced)) = self.jobs.remove(id)
                    && self.allows == Some(false)
                    && self.left.is_some_and(|left| left >= announced)
                {
                    self.was_asked((*id, announced));
                }
            }
            Sign::JobsUntold => self.jobs.clear(),
            _ => {}
        }
    }

    fn was_asked(&mut self, job: Announced) {
        self.asked = Some(job);
        self.by_will = true;
    }

    fn learn(&mut self, unit: &Unit, kubelet_has_ended: bool, uptime: Duration) {
        let is_active = ["active", "reloading"].contains(&unit.active_state.as_str());
        let allows = is_active != (self.dependency.tie == Tie::Conflicts);
        match (self.allows.replace(allows), allows) {
            (Some(false) | None, true) => {
                self.by_will = false;
                if self.left.is_some() {
                    self.back.get_or_insert(uptime);
                }
            }
            (Some(true), false) => {
                self.by_will |= self.has_open_parting();
                // Of one that ends again and again the first end counts, which the kubelet followed.
                if kubelet_has_ended {
                    self.left.get_or_insert(uptime);
                } else {
                    (self.left, self.back) = (Some(uptime), None);
                }
            }
            _ => {}
        }
    }

    fn has_open_parting(&self) -> bool {
        let parting = self.parting();
        self.jobs.values().any(|(kind, _)| *kind == parting)
    }

    /// Whether that stop job for the kubelet followed from this unit.
    fn is_behind(&self, stop: Announced) -> bool {
        let (id, at) = stop;
        let is_near = |other: Duration| other.abs_diff(at) <= TOGETHER;
        if let Some((asked, when)) = self.asked
            && is_near(when)
        {
            // The kubelet's came first if somebody stopped the kubelet, and this one after it.
            return asked < id;
        }
        self.dependency.tie == Tie::BindsTo && self.left.is_some_and(is_near)
    }
}

/// What is known of the units on which the kubelet's depends.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    others: Vec<Other>,
    /// The last stop job for the kubelet.
    stop: Option<Announced>,
}

/// Where the unit stands with which the kubelet was stopped.
enum Standing {
    /// It does not allow the kubelet, by somebody's will or as far as is known.
    Willed,
    /// It is back since then (uptime), or has ended by itself then and not come back.
    Due { since: Duration, is_back: bool },
}

impl Dependencies {
    /// systemd has read the unit: on these it depends.
    pub(super) fn are(&mut self, list: &[Dependency]) {
        let is_listed = |other: &Other| list.contains(&other.dependency);
        self.others.retain(is_listed);
        for dependency in list.iter().take(MAX_DEPENDENCIES) {
            if !self.others.iter().any(|o| o.dependency == *dependency) {
                self.others.push(Other::new(dependency.clone()));
            }
        }
    }

    pub(super) fn said(&mut self, unit: &str, sign: &Sign, has_ended: bool, now: Now) {
        let its = |other: &&mut Other| other.dependency.unit == unit;
        for other in self.others.iter_mut().filter(its) {
            other.said(sign, has_ended, now.uptime);
        }
    }

    /// A stop job for the kubelet.
    pub(super) fn stop_asked(&mut self, id: u32, announced: Duration) {
        self.stop = Some((id, announced));
    }

    /// Another kubelet lives: what ended the last one does not matter any more.
    pub(super) fn begin(&mut self) {
        self.stop = None;
        for other in &mut self.others {
            (other.asked, other.left, other.back) = (None, None, None);
        }
    }

    pub(super) fn bus_lost(&mut self) {
        for other in &mut self.others {
            other.allows = None;
            other.jobs.clear();
        }
    }

    /// Units and jobs that are remembered.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.others.iter().map(|other| 1 + other.jobs.len()).sum()
    }

    fn behind(&self) -> Option<&Other> {
        let stop = self.stop?;
        self.others.iter().find(|other| other.is_behind(stop))
    }
}

impl Other {
    fn standing(&self) -> Standing {
        match (self.allows, self.back, self.left) {
            (Some(true), Some(since), _) => Standing::Due {
                since,
                is_back: true,
            },
            (Some(false), back, Some(left)) if !self.by_will => Standing::Due {
                since: back.unwrap_or(left),
                is_back: back.is_some(),
            },
            _ => Standing::Willed,
        }
    }
}

impl Kubelet {
    /// When a kubelet that was stopped with another unit must be back (uptime).
    pub(super) fn back_is_due_at(&self) -> Option<Duration> {
        match &self.life {
            Life::Ended(ended) if ended.cause == Cause::Stopped => {}
            _ => return None,
        }
        match self.dependencies.behind()?.standing() {
            Standing::Due { since, .. } => Some(since + self.terms.start_grace),
            Standing::Willed => None,
        }
    }

    /// It ended by a stop job.
    pub(super) fn assess_stopped(&self, who: &str, now: Now) -> Assessment {
        let (name, grace) = (&self.unit_name, self.terms.start_grace);
        let Some(other) = self.dependencies.behind() else {
            return found(
                Reason::KubeletStoppedByOperator,
                format!("{name}: {who} was stopped by a stop job of systemd's"),
            );
        };
        let Dependency { unit, tie } = &other.dependency;
        let tie = tie.as_str();
        let with = format!("{name}: {who} was stopped by systemd with {unit} ({tie}={unit})");
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
                let others = &self.dependencies.others;
                let all_allow = others.iter().all(|other| other.allows == Some(true));
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
