//! Who asks for quiet at the moment: gathers what the pause file, the Node, systemd and the package managers say into
//! the list of [`Suppressor`]s, and says once when one comes or goes.
//!
//! Level-triggered: the list is made anew in each turn from what is known and what time it is.

use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    checks,
    clock::Now,
    cluster::api::{AskedPause, NodeWill, PAUSE_ANNOTATION},
    health::{
        ConditionType, Conditions, Finding, Status,
        suppress::{PACKAGE_UPGRADE_HOLDS, Quiet, Suppressor},
    },
    host::journal::Kind,
    pause::Pause,
};

/// So long after boot files and services are still being put in place, by cloud-init for one.
const HOST_GRACE: Duration = Duration::from_mins(1);
/// So long after its Node was born what the agent thought of a host without one is looked at anew.
const NODE_GRACE: Duration = Duration::from_secs(15);
/// How long what the kernel said of the package managers' locks counts.
const PACKAGES_EVERY: Duration = Duration::from_secs(1);
/// The annotation's bound.
const MAX_WORDS_BYTES: usize = 512;

/// What is known of those who may ask for quiet.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pause: Option<Pause>,
    will: NodeWill,
    shutting_down: bool,
    packages: Packages,
    /// When the new Node's grace ends (uptime).
    node_grace: Option<Duration>,
    /// Those who ask now.
    list: Vec<Suppressor>,
    changed: bool,
}

/// A package manager, as the kernel said last.
#[derive(Debug, Default)]
struct Packages {
    manager: Option<&'static str>,
    /// Since when somebody is at work without a pause that we saw (uptime).
    since: Option<Duration>,
    /// When the kernel was asked (uptime).
    asked_at: Option<Duration>,
}

impl Packages {
    fn is_stale(&self, now: Now) -> bool {
        self.asked_at
            .is_none_or(|at| now.uptime >= at + PACKAGES_EVERY)
    }

    /// Whose end is waited for.
    fn at_work(&self, now: Now) -> Option<&'static str> {
        let since = self.since?;
        self.manager
            .filter(|_| now.uptime < since + PACKAGE_UPGRADE_HOLDS)
    }
}

impl Standing {
    /// Those who ask for quiet now.
    pub(super) fn suppressors(&self) -> &[Suppressor] {
        &self.list
    }

    /// The pause file changed.
    pub(super) fn learn_pause(&mut self, read: Result<Option<Pause>, String>, now: Now) {
        let pause = read.unwrap_or_else(|error| {
            warn!(%error, "the pause file cannot be used; not paused by it");
            None
        });
        if let Some(pause) = &pause
            && !pause.holds(now.wall)
            && pause.until > now.wall
        {
            warn!(until = %pause.until, "the pause file asks for more than seven days; not paused by it");
        }
        self.pause = pause;
    }

    /// What others want of our Node; nothing if there is none.
    pub(super) fn learn_will(&mut self, will: &NodeWill) {
        if self.will == *will {
            return;
        }
        if let Some(AskedPause::Unclear(text)) = &will.pause
            && self.will.pause != will.pause
        {
            warn!(
                "the annotation {PAUSE_ANNOTATION} is `{text}`, which is no RFC 3339 time such as 2026-11-21T16:30:00Z: \
                 paused until it is removed"
            );
        }
        self.will = will.clone();
    }

    /// A Node was born under our eyes.
    pub(super) fn node_is_new(&mut self, now: Now) {
        self.node_grace = Some(now.uptime + NODE_GRACE);
    }

    /// Whether the host is going down, as far as systemd has said.
    pub(super) fn is_going_down(&self) -> bool {
        self.shutting_down
    }

    pub(super) fn learn_shutdown(&mut self, shutting_down: bool) {
        self.shutting_down = shutting_down;
    }

    pub(super) fn learn_packages(&mut self, manager: Option<&'static str>, now: Now) {
        let since = manager.and(self.packages.since.or(Some(now.uptime)));
        self.packages = Packages {
            manager,
            since,
            asked_at: Some(now.uptime),
        };
    }

    /// Whether to judge only after the kernel has said if a package manager is at work: a status is about to flip, and
    /// it has not been asked just now. Its answer is the next event. A death is told whoever is at work.
    pub(super) fn must_ask_about_packages<'a>(
        &self,
        health: &Conditions,
        mut words: impl Iterator<Item = (checks::Spec, &'a [Finding])>,
        now: Now,
    ) -> bool {
        let flips = |kind: ConditionType, finding: &Finding| {
            let (reason, status) = (finding.reason, finding.reason.status());
            if status == Status::True {
                return false;
            }
            let is_death = status == Status::False && reason.enter().is_fact();
            let shown = health.get(kind).verdict().map(|shown| shown.status);
            shown != Some(status) && !is_death
        };
        let word_flips = |(check, findings): (checks::Spec, &[Finding])| {
            findings
                .iter()
                .any(|finding| flips(check.condition, finding))
        };
        self.packages.is_stale(now) && words.any(word_flips)
    }

    /// When the list may change though nothing happens (uptime).
    pub(super) fn next_deadline(&self, now: Now) -> Option<Duration> {
        let left = |until: Timestamp| {
            let left = Duration::try_from(until.duration_since(now.wall)).ok()?;
            Some(now.uptime + left)
        };
        let pauses = self.list.iter().filter_map(|asks| match asks {
            Suppressor::Paused { until, .. } => left((*until)?),
            _ => None,
        });
        let packages = self.packages.at_work(now).and(self.packages.asked_at);
        let others = [
            packages.map(|at| at + PACKAGES_EVERY),
            self.node_grace,
            Some(HOST_GRACE),
        ];
        let all = pauses.chain(others.into_iter().flatten());
        all.filter(|at| *at > now.uptime).min()
    }

    /// Makes the list anew, and says what came and went.
    pub(super) fn settle(&mut self, now: Now) {
        let list = self.gather(now);
        if list == self.list {
            return;
        }
        for came in list.iter().filter(|asks| !self.list.contains(asks)) {
            match came.quiet() {
                Quiet::StandDown => {
                    info!(
                        message_id = Kind::StandingDown.id(),
                        "standing down: {came}"
                    );
                }
                Quiet::Hold => {
                    info!(
                        message_id = Kind::StandingDown.id(),
                        "holding back changes: {came}"
                    );
                }
            }
        }
        for went in self.list.iter().filter(|asks| !list.contains(asks)) {
            info!(message_id = Kind::StandingUp.id(), "no more: {went}");
        }
        (self.list, self.changed) = (list, true);
    }

    fn gather(&self, now: Now) -> Vec<Suppressor> {
        let shutdown = self.shutting_down.then_some(Suppressor::ShuttingDown);
        let pause = self.pause.as_ref().filter(|pause| pause.holds(now.wall));
        let pause = pause.map(|pause| Suppressor::Paused {
            by: pause.describe(),
            until: Some(pause.until),
        });
        let deletion = self.will.deletion.map(|sign| Suppressor::BeingDeleted {
            sign: sign.to_owned(),
        });
        let packages = self.packages.at_work(now).map(|manager| {
            let manager = manager.to_owned();
            Suppressor::PackageUpgrade { manager }
        });
        let young = now.uptime < HOST_GRACE || self.node_grace.is_some_and(|at| now.uptime < at);
        let all = [
            shutdown,
            pause,
            asked_pause(self.will.pause.as_ref(), now),
            self.will.maintenance.then_some(Suppressor::Maintenance),
            deletion,
            packages,
            young.then_some(Suppressor::BootGrace),
        ];
        all.into_iter().flatten().collect()
    }
}

fn asked_pause(asked: Option<&AskedPause>, now: Now) -> Option<Suppressor> {
    let annotation = |why: &str| match why {
        "" => format!("annotation {PAUSE_ANNOTATION}"),
        why => format!("annotation {PAUSE_ANNOTATION} ({why})"),
    };
    let (by, until) = match asked? {
        AskedPause::Until(until) if *until <= now.wall => return None,
        AskedPause::Until(until) => (annotation(""), Some(*until)),
        AskedPause::UntilRemoved(why) | AskedPause::Unclear(why) => (annotation(why), None),
    };
    Some(Suppressor::Paused { by, until })
}

impl State {
    /// Who has us stand down, and until when, for the Node's annotation; nothing while nobody does.
    pub fn standing_down(&self) -> Option<String> {
        let list = self.standing.suppressors().iter();
        let words: Vec<String> = list
            .filter(|asks| asks.quiet() == Quiet::StandDown)
            .map(Suppressor::to_string)
            .collect();
        let mut words = words.join("; ");
        words.truncate(words.floor_char_boundary(MAX_WORDS_BYTES));
        (!words.is_empty()).then_some(words)
    }

    /// `true` if those who ask for quiet are others than before.
    pub(super) fn settle_standing(&mut self, now: Now) -> bool {
        self.standing.settle(now);
        std::mem::take(&mut self.standing.changed)
    }

    /// While a package manager is at work, looks whether it still is.
    pub(super) fn follow_packages(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let packages = &self.standing.packages;
        let asked = effects.contains(&Effect::LookForPackages);
        if !asked && packages.manager.is_some() && packages.is_stale(now) {
            effects.push(Effect::LookForPackages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Now {
        Now {
            uptime: Duration::from_hours(1) + Duration::from_secs(secs),
            wall: Timestamp::from_second(1_800_000_000 + i64::try_from(secs).unwrap()).unwrap(),
        }
    }

    /// Those who ask for quiet at that time, in words.
    fn asking(standing: &mut Standing, secs: u64) -> Vec<String> {
        standing.settle(at(secs));
        standing.list.iter().map(ToString::to_string).collect()
    }

    fn pause(secs: u64, length_secs: u64) -> Pause {
        let length = Duration::from_secs(length_secs);
        Pause::new(at(secs).wall, length, None, Some("swap".to_owned())).unwrap()
    }

    #[test]
    fn nobody_asks_on_a_quiet_day() {
        let mut standing = Standing::default();
        assert!(asking(&mut standing, 0).is_empty());
        assert_eq!(standing.next_deadline(at(0)), None);
    }

    #[test]
    fn a_pause_begins_at_once_and_ends_by_itself() {
        let mut standing = Standing::default();
        standing.learn_pause(Ok(Some(pause(0, 1800))), at(1));
        let asks = asking(&mut standing, 1);
        assert_eq!(asks.len(), 1);
        assert!(
            asks[0].starts_with("paused by nodevigil pause (swap) until 2027-"),
            "{asks:?}"
        );
        assert_eq!(standing.next_deadline(at(1)), Some(at(1800).uptime));
        assert_eq!(asking(&mut standing, 1799).len(), 1);
        assert!(asking(&mut standing, 1800).is_empty());
        // The same, taken back; and a file that makes no sense is none.
        standing.learn_pause(Ok(Some(pause(0, 1800))), at(1));
        standing.learn_pause(Err("broken".to_owned()), at(2));
        assert!(asking(&mut standing, 2).is_empty());
    }

    #[test]
    fn the_annotation_lasts_until_its_time_or_its_end() {
        let mut standing = Standing::default();
        let mut ask = |asked: Option<AskedPause>, secs| {
            standing.learn_will(&NodeWill {
                pause: asked,
                ..NodeWill::default()
            });
            asking(&mut standing, secs)
        };
        let until = AskedPause::Until(at(60).wall);
        assert_eq!(ask(Some(until.clone()), 0).len(), 1);
        assert!(ask(Some(until), 60).is_empty());
        let text = AskedPause::UntilRemoved("disk swap".to_owned());
        let words = "paused by annotation nodevigil.io/pause (disk swap)";
        assert_eq!(ask(Some(text), 90), [words]);
        assert_eq!(
            ask(Some(AskedPause::Unclear("30m".to_owned())), 91).len(),
            1
        );
        assert!(ask(None, 92).is_empty());
    }

    #[test]
    fn maintenance_deletion_and_shutdown_come_and_go() {
        let mut standing = Standing::default();
        standing.learn_will(&NodeWill {
            maintenance: true,
            deletion: Some("karpenter.sh/disrupted"),
            pause: None,
        });
        standing.learn_shutdown(true);
        let asks = asking(&mut standing, 0);
        assert_eq!(asks.len(), 3);
        assert!(asks[2].contains("karpenter.sh/disrupted"), "{asks:?}");
        standing.learn_will(&NodeWill::default());
        standing.learn_shutdown(false);
        assert!(asking(&mut standing, 1).is_empty());
    }

    #[test]
    fn a_package_manager_holds_while_it_works_and_not_for_ever() {
        let mut standing = Standing::default();
        assert!(standing.packages.is_stale(at(0)));
        standing.learn_packages(Some("dpkg"), at(0));
        assert!(!standing.packages.is_stale(at(0)));
        assert_eq!(asking(&mut standing, 0), ["dpkg is changing packages"]);
        assert_eq!(standing.next_deadline(at(0)), Some(at(1).uptime));
        let end = PACKAGE_UPGRADE_HOLDS.as_secs();
        for secs in (1..end).step_by(10) {
            standing.learn_packages(Some("dpkg"), at(secs));
            assert_eq!(asking(&mut standing, secs).len(), 1);
        }
        standing.learn_packages(Some("dpkg"), at(end));
        assert!(asking(&mut standing, end).is_empty());
        // It ended, and another began.
        standing.learn_packages(None, at(end + 1));
        standing.learn_packages(Some("rpm"), at(end + 2));
        assert_eq!(asking(&mut standing, end + 2).len(), 1);
        standing.learn_packages(None, at(end + 3));
        assert!(asking(&mut standing, end + 3).is_empty());
    }

    #[test]
    fn a_young_host_and_a_young_node_have_their_grace() {
        let mut standing = Standing::default();
        let booted = Now {
            uptime: Duration::from_secs(5),
            ..at(0)
        };
        standing.settle(booted);
        assert_eq!(standing.list, [Suppressor::BootGrace]);
        assert_eq!(standing.next_deadline(booted), Some(HOST_GRACE));
        assert!(asking(&mut standing, 0).is_empty());
        standing.node_is_new(at(0));
        assert_eq!(asking(&mut standing, 0).len(), 1);
        let end = NODE_GRACE.as_secs();
        assert_eq!(standing.next_deadline(at(0)), Some(at(end).uptime));
        assert!(asking(&mut standing, end).is_empty());
    }
}
