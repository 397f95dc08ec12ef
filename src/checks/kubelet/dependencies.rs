//! The units on which the kubelet's depends: whether a stop of the kubelet followed from what became of one of them, and
//! whether that was somebody's will.
//!
//! systemd stops the kubelet with another unit in two ways. A stop job for the other unit (or a start job, if the two exclude
//! each other) brings one for the kubelet in the same transaction, whose first job has the lowest number. And a unit that the
//! kubelet is bound to ends by itself: then systemd makes a stop job for the kubelet alone, just after that. Either way that unit's
//! own stop job may follow from a unit that it depends on in turn: such a chain is followed to its beginning.
//!
//! Who asks for a stop of the kubelet while it is being stopped with another unit gets the job that is there: systemd announces no
//! other one, but says that job's state once more. Who asks for it after its end gets a job of its own.

use std::{collections::BTreeMap, time::Duration};

use super::{JobKind, MAX_JOBS, Sign, Unit};
use crate::clock::Now;

/// How many units on which the kubelet's depends are remembered at most, and as many on which these depend in turn.
pub const MAX_DEPENDENCIES: usize = 8;
/// How many units of a chain are looked at, the kubelet's own dependency first.
const MAX_DEPTH: usize = 4;
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

/// What is known of a unit on which the kubelet's depends, or a unit of which that is so.
#[derive(Debug)]
pub(super) struct Other {
    /// Whose dependency it is; `None`: the kubelet's.
    of: Option<String>,
    pub(super) dependency: Dependency,
    /// Whether the one that depends on it may run beside it as it is: it is active, or not active if the two exclude each other.
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
    fn new(of: Option<&str>, dependency: Dependency, is_active: Option<bool>) -> Self {
        Self {
            of: of.map(str::to_owned),
            allows: is_active.map(|active| active != (dependency.tie == Tie::Conflicts)),
            dependency,
            jobs: BTreeMap::new(),
            asked: None,
            by_will: false,
            left: None,
            back: None,
        }
    }

    /// The kind of job by which it ceases to allow it.
    pub(super) fn parting(&self) -> JobKind {
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
        let allows = is_active(unit) != (self.dependency.tie == Tie::Conflicts);
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

    /// The job by which it was to stop allowing the other, if that was announced beside that stop job of the other's.
    fn asked_beside(&self, stop: Announced) -> Option<Announced> {
        let is_near = |(_, when): &Announced| when.abs_diff(stop.1) <= TOGETHER;
        self.asked.filter(is_near)
    }

    /// Whether that stop job for the one that depends on it followed from this unit.
    fn is_behind(&self, stop: Announced) -> bool {
        if let Some((asked, _)) = self.asked_beside(stop) {
            // The other's came first if somebody stopped the other, and this one after it.
            return asked < stop.0;
        }
        let is_near = |left: Duration| left.abs_diff(stop.1) <= TOGETHER;
        self.dependency.tie == Tie::BindsTo && self.left.is_some_and(is_near)
    }

    /// Where it stands now.
    pub(super) fn standing(&self) -> Standing {
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

fn is_active(unit: &Unit) -> bool {
    ["active", "reloading"].contains(&unit.active_state.as_str())
}

/// Where a unit stands with which the kubelet was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not allow the kubelet, by somebody's will or as far as is known.
    Willed,
    /// It is back since then (uptime), or has ended by itself then and not come back.
    Due { since: Duration, is_back: bool },
}

/// A stop job for the kubelet.
#[derive(Debug, Clone, Copy)]
struct Stop {
    job: Announced,
    /// Whether somebody asked for it, whatever else was stopped then.
    is_own: bool,
}

/// What is known of the units on which the kubelet's depends, and of those on which these depend.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    others: Vec<Other>,
    /// Which units were active when they were heard of last: one may become a dependency later.
    active: BTreeMap<String, bool>,
    /// The last stop job for the kubelet.
    stop: Option<Stop>,
    /// The last job for it that was asked for once more, of whatever type.
    again: Option<u32>,
}

impl Dependencies {
    /// systemd has read the kubelet's unit: on these it depends.
    pub(super) fn are(&mut self, list: &[Dependency]) {
        self.list(None, list);
    }

    /// On these a unit depends, or the kubelet's.
    fn list(&mut self, of: Option<&str>, list: &[Dependency]) {
        let is_its = |other: &Other| other.of.as_deref() == of;
        self.others
            .retain(|other| !is_its(other) || list.contains(&other.dependency));
        for dependency in list.iter().take(MAX_DEPENDENCIES) {
            let is_known = |other: &Other| is_its(other) && other.dependency == *dependency;
            let is_alike = |other: &&Other| other.of.is_none() == of.is_none();
            let alike = self.others.iter().filter(is_alike).count();
            if alike < MAX_DEPENDENCIES && !self.others.iter().any(is_known) {
                let active = self.active.get(&dependency.unit).copied();
                self.others.push(Other::new(of, dependency.clone(), active));
            }
        }
        self.drop_unneeded();
    }

    /// Forgets what units depend on that nobody depends on any more.
    fn drop_unneeded(&mut self) {
        for _ in 0..MAX_DEPTH {
            let units: Vec<String> = self.units().map(str::to_owned).collect();
            let is_needed = |of: &String| units.contains(of);
            self.others
                .retain(|other| other.of.as_ref().is_none_or(is_needed));
        }
    }

    fn units(&self) -> impl Iterator<Item = &str> {
        let unit = |other| -> &str {
            let other: &Other = other;
            &other.dependency.unit
        };
        self.others.iter().map(unit)
    }

    pub(super) fn said(&mut self, unit: &str, sign: &Sign, has_ended: bool, now: Now) {
        if let Sign::Unit(word) = sign {
            if self.active.len() >= 4 * MAX_DEPENDENCIES {
                self.active.clear(); // more than are followed
            }
            self.active.insert(unit.to_owned(), is_active(word));
        }
        let its = |other: &&mut Other| other.dependency.unit == unit;
        for other in self.others.iter_mut().filter(its) {
            other.said(sign, has_ended, now.uptime);
        }
        if let Sign::Unit(word) = sign
            && self.units().any(|known| known == unit)
        {
            self.list(Some(unit), &word.dependencies);
        }
    }

    /// A stop job for the kubelet, which has ended already or not.
    pub(super) fn stop_asked(&mut self, id: u32, announced: Duration, has_ended: bool) {
        let job = (id, announced);
        match &mut self.stop {
            Some(stop) if stop.job.0 == id => stop.job = job,
            stop => {
                let is_own = (has_ended && stop.is_some()) || self.again == Some(id);
                *stop = Some(Stop { job, is_own });
            }
        }
    }

    /// Somebody asked for that job of the kubelet's once more. Its type may become known later.
    pub(super) fn asked_again(&mut self, id: u32) {
        self.again = Some(id);
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.job.0 == id) {
            stop.is_own = true;
        }
    }

    /// Another kubelet lives: what ended the last one does not matter any more.
    pub(super) fn begin(&mut self) {
        self.stop = None;
        for other in &mut self.others {
            (other.asked, other.left, other.back) = (None, None, None);
        }
    }

    pub(super) fn bus_lost(&mut self) {
        self.active.clear();
        for other in &mut self.others {
            other.allows = None;
            other.jobs.clear();
        }
    }

    /// Whether each of the kubelet's own allows it.
    pub(super) fn all_allow(&self) -> bool {
        let mut own = self.others.iter().filter(|other| other.of.is_none());
        own.all(|other| other.allows == Some(true))
    }

    /// Units and jobs that are remembered.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let others = self.others.iter().map(|other| 1 + other.jobs.len());
        others.sum::<usize>() + self.active.len()
    }

    /// The units behind the kubelet's stop, its own dependency first and the one with which it began last; none if it was stopped
    /// for itself.
    pub(super) fn behind(&self) -> Vec<&Other> {
        let mut chain: Vec<&Other> = Vec::new();
        let mut stop = match self.stop {
            Some(stop) if !stop.is_own => Some(stop.job),
            _ => None,
        };
        while let Some(job) = stop
            && chain.len() < MAX_DEPTH
        {
            let of = chain.last().map(|other| other.dependency.unit.as_str());
            let is_next = |other: &&Other| other.of.as_deref() == of && other.is_behind(job);
            let Some(next) = self.others.iter().find(is_next) else {
                break;
            };
            chain.push(next);
            // A start, of one that excludes the other, follows from no stop.
            let is_stop = next.parting() == JobKind::Stop;
            stop = next.asked_beside(job).filter(|_| is_stop);
        }
        chain
    }
}
