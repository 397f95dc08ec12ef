//! Who asks for quiet at the moment: gathers what the pause file, the Node, systemd and the package managers say into
//! the list of [`Suppressor`]s, and says once when one comes or goes.
//!
//! Level-triggered: the list is made anew in each turn from what is known and what time it is.

mod asked;
mod kept;
mod sights;

use std::time::Duration;

use tracing::{info, warn};

use self::{
    asked::{Asked, WARN_BEFORE, Which, pause_subject, sign_subject},
    sights::Sights,
};
use super::{event::Effect, state::State};
use crate::{
    checks,
    clock::Now,
    cluster::{
        api::{AskedPause, NodeWill, PAUSE_ANNOTATION, PauseAnnotation},
        events::Notice,
    },
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
/// The bound of what the annotation says to people; what it keeps for the next life of ours comes after it.
const MAX_WORDS_BYTES: usize = 512;

/// What is known of those who may ask for quiet.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// `[suppression] max_pause_secs`.
    longest: Duration,
    pause: Option<Pause>,
    will: NodeWill,
    /// Since when what stands on the Node stands there.
    sights: Sights,
    shutting_down: bool,
    packages: Packages,
    /// When the new Node's grace ends (uptime).
    node_grace: Option<Duration>,
    /// Those who ask now.
    list: Vec<Suppressor>,
    /// What asks for too long, and is ignored.
    over: Vec<Asked>,
    /// The pauses whose end was warned of.
    warned: Vec<Which>,
    /// Those of which an earlier life warned, and that this one has not met yet, by [`Which::key`].
    warned_before: Vec<String>,
    /// When one of those who ask comes to its end, or is to be warned of (uptime).
    ends_at: Option<Duration>,
    /// What is to be told of pauses that end.
    news: Vec<Notice>,
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
    /// Nobody asks yet; whoever does is heard for so long at most.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            ..Self::default()
        }
    }

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
            && pause.until > now.wall
            && Asked::by_file(pause, self.longest, now).is_none()
        {
            warn!(since = %pause.since, "the pause file is from the future by this clock; not paused by it");
        }
        self.pause = pause;
    }

    /// The annotation `nodevigil.io/standing-down` as it stands on the Node: an earlier life's, as far as it is the first.
    pub(super) fn recall(&mut self, annotation: Option<&str>) {
        self.sights.recall(annotation);
    }

    /// What others want of our Node; nothing if there is none.
    pub(super) fn learn_will(&mut self, will: &NodeWill, now: Now) {
        let pause = will.pause.iter().map(pause_subject);
        let signs = will.maintenance.iter().map(sign_subject);
        self.sights.see(pause.chain(signs), now);
        if self.will == *will {
            return;
        }
        if let Some(PauseAnnotation {
            asks: AskedPause::Unclear(text),
            ..
        }) = &will.pause
            && self.will.pause != will.pause
        {
            warn!(
                "the annotation {PAUSE_ANNOTATION} is `{text}`, which is no RFC 3339 time such as 2026-11-21T16:30:00Z: \
                 paused until it is removed, or too old"
            );
        }
        self.will = will.clone();
    }

    /// A Node was born under our eyes.
    pub(super) fn node_is_new(&mut self, now: Now) {
        self.node_grace = Some(now.uptime + NODE_GRACE);
        self.sights.begin_anew(now);
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
        let packages = self.packages.at_work(now).and(self.packages.asked_at);
        let others = [
            packages.map(|at| at + PACKAGES_EVERY),
            self.node_grace,
            Some(HOST_GRACE),
            self.ends_at,
        ];
        let all = others.into_iter().flatten();
        all.filter(|at| *at > now.uptime).min()
    }

    /// Makes the list anew, and says what came and went.
    pub(super) fn settle(&mut self, now: Now) {
        self.changed |= self.sights.follow_clock(now);
        let (over, asked): (Vec<_>, Vec<_>) = self.asked(now).partition(Asked::is_over);
        self.warn_of_ends(&asked, now);
        self.say_what_is_ignored(over);
        let list = self.gather(asked, now);
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

    /// What people and their tools ask for, and what they have asked for too long.
    fn asked(&self, now: Now) -> impl Iterator<Item = Asked> {
        let (sights, longest) = (&self.sights, self.longest);
        let file = self.pause.as_ref();
        let file = file.and_then(|pause| Asked::by_file(pause, longest, now));
        let annotation = self.will.pause.as_ref();
        let annotation =
            annotation.and_then(|pause| Asked::by_annotation(pause, sights, longest, now));
        let signs = self.will.maintenance.iter();
        let signs = signs.map(move |sign| Asked::by_sign(sign, sights, longest, now));
        file.into_iter().chain(annotation).chain(signs)
    }

    /// Once for each pause, an hour before it ends.
    fn warn_of_ends(&mut self, asked: &[Asked], now: Now) {
        self.meet_those_warned_before(asked);
        (self.warned).retain(|which| asked.iter().any(|asked| asked.which == *which));
        self.ends_at = None;
        for asked in asked {
            let waits = asked.is_warned_of() && !self.warned.contains(&asked.which);
            let mut left = asked.left;
            if waits && left > WARN_BEFORE {
                left -= WARN_BEFORE;
            } else if waits {
                let notice = asked.warning();
                warn!(message_id = Kind::PauseEnds.id(), "{}", notice.note);
                self.news.push(notice);
                self.warned.push(asked.which);
                self.changed = true; // so that the ledger has it
            }
            let at = now.uptime + left;
            self.ends_at = Some(self.ends_at.map_or(at, |soonest| soonest.min(at)));
        }
    }

    /// Once for each; as an Event only if it was heeded in this life.
    fn say_what_is_ignored(&mut self, over: Vec<Asked>) {
        let same = |a: &Asked, b: &Asked| a.which == b.which && a.since == b.since;
        let is_known = |asked: &Asked| self.over.iter().any(|known| same(known, asked));
        if over.len() == self.over.len() && over.iter().all(is_known) {
            return;
        }
        let was_heeded = |asked: &Asked| {
            let by = |asks: &Suppressor| matches!(asks, Suppressor::Paused { by, .. } if asked.is_by(by));
            self.list.iter().any(by)
        };
        for asked in over.iter().filter(|asked| !is_known(asked)) {
            warn!(message_id = Kind::PauseEnds.id(), "{}", asked.ignored());
            if was_heeded(asked) {
                self.news.push(asked.ended());
            }
        }
        (self.over, self.changed) = (over, true);
    }

    fn gather(&self, asked: Vec<Asked>, now: Now) -> Vec<Suppressor> {
        let shutdown = self.shutting_down.then_some(Suppressor::ShuttingDown);
        let deletion = self.will.deletion.map(|sign| Suppressor::BeingDeleted {
            sign: sign.to_owned(),
        });
        let packages = self.packages.at_work(now).map(|manager| {
            let manager = manager.to_owned();
            Suppressor::PackageUpgrade { manager }
        });
        let young = now.uptime < HOST_GRACE || self.node_grace.is_some_and(|at| now.uptime < at);
        let asked = asked.into_iter().map(|asked| asked.suppressor);
        let others = [deletion, packages, young.then_some(Suppressor::BootGrace)];
        let all = shutdown.into_iter().chain(asked);
        all.chain(others.into_iter().flatten()).collect()
    }

    /// Who has us stand down, and until when; nothing while nobody does.
    fn words(&self) -> Option<String> {
        let list = self.list.iter();
        let who = list.filter(|asks| asks.quiet() == Quiet::StandDown);
        joined(who.map(Suppressor::to_string))
    }

    /// The Node's annotation `nodevigil.io/standing-down`: who has us stand down, what is ignored, and, for the next life
    /// of ours, when we saw first what has no time of its own.
    fn annotation(&self) -> Option<String> {
        let ignored = joined(self.over.iter().map(Asked::ignored));
        let words = joined(self.words().into_iter().chain(ignored))?;
        let pause = self.will.pause.iter().map(pause_subject);
        let signs = self.will.maintenance.iter();
        let signs = signs.filter(|sign| sign.since.is_none()).map(sign_subject);
        let record = self.sights.record(pause.chain(signs));
        Some(match record {
            Some(record) => words + " " + &record,
            None => words,
        })
    }
}

/// One text of at most [`MAX_WORDS_BYTES`]; nothing of nothing.
fn joined(all: impl Iterator<Item = String>) -> Option<String> {
    let mut words = all.collect::<Vec<_>>().join("; ");
    words.truncate(words.floor_char_boundary(MAX_WORDS_BYTES));
    (!words.is_empty()).then_some(words)
}

impl State {
    /// Who has us stand down, and until when; nothing while nobody does.
    pub fn standing_down(&self) -> Option<String> {
        self.standing.words()
    }

    /// What the Node's annotation says of that.
    pub(super) fn standing_annotation(&self) -> Option<String> {
        self.standing.annotation()
    }

    /// `true` if those who ask for quiet are others than before.
    pub(super) fn settle_standing(&mut self, now: Now) -> bool {
        self.standing.settle(now);
        let is_shadow = self.desired.choice().shadow;
        for notice in self.standing.news.drain(..).filter(|_| !is_shadow) {
            self.events.record(notice, now);
        }
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
mod tests;
