//! The checks that the loop drives: whose turn it is, what they want read, what they hear of it.
//!
//! At most one question of a check is open. [`State::take_turns`] decides; [`Agent::ask`] performs, one arm a question.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tracing::warn;

use super::{
    Agent, Outside,
    event::{Effect, Event},
    peer::Peer,
    state::State,
};
use crate::{
    checks::{
        self, Check, Question, Reading, Unasked,
        clock::Step,
        kernel::state::KernelAsk,
        lease::{Healthz, Sight},
        nodevigil::Surroundings,
    },
    clock::{Now, Steps},
    cluster::events::Notice,
    config::Settings,
    health::{MAX_MESSAGE_BYTES, Reason, bounded},
    helper::protocol::{Heard, RuntimeAnswer},
    host::{
        helper::{Code, HelperError},
        kernel, kmsg, unix_sockets,
    },
    status::{MAX_NEWS, News},
};

/// A check that waits less than this between two looks is in a hurry.
const SECOND: Duration = Duration::from_secs(1);

/// A check, and whether its question is open.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) check: Box<dyn Check>,
    open: bool,
    /// When it was asked last (uptime).
    asked_at: Duration,
    /// When it wants its turn (uptime), as it said last.
    due_at: Option<Duration>,
    /// Whether it heard something or had its turn since it was last asked what it says: only then that may be another word.
    pub(super) stirred: bool,
}

impl Driven {
    fn new(check: Box<dyn Check>) -> Self {
        Self {
            due_at: check.due_at(),
            check,
            open: false,
            asked_at: Duration::ZERO,
            stirred: true,
        }
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        self.check.take(reading, now);
        self.stir();
    }

    /// Nothing else changes it: between two of these it need not be asked, which for all checks at each turn would be most of
    /// what an idle turn does.
    fn stir(&mut self) {
        (self.due_at, self.stirred) = (self.check.due_at(), true);
    }

    /// Whether its turn has come; `soon` is until when what is due is done now.
    fn is_due(&self, now: Now, soon: Duration) -> bool {
        self.due_at.is_some_and(|at| {
            // Who wants the next look after a tenth of a second is not served by another at once.
            let wait = at.saturating_sub(self.asked_at);
            let is_hasty = wait < SECOND;
            let until = if is_hasty {
                now.uptime + wait / 10
            } else {
                soon
            };
            until >= at
        })
    }
}

/// Every check that is driven.
pub(super) fn driven(settings: &Settings) -> Vec<Driven> {
    let all = checks::driven(settings).into_iter();
    all.map(Driven::new).collect()
}

impl State {
    /// Tells every check what was read.
    pub(super) fn offer(&mut self, reading: &Reading, now: Now) {
        self.learn_of_kill(reading, now);
        self.learn_of_lease(reading, now);
        self.counted.read(reading);
        for driven in &mut self.driven {
            driven.take(reading, now);
        }
    }

    /// The answer to the question of the check with that id.
    pub(super) fn take_answer(
        &mut self,
        id: &'static str,
        reading: &Reading,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        for driven in &mut self.driven {
            if driven.check.spec().id == id {
                driven.open = false;
                let took = now.uptime.saturating_sub(driven.asked_at);
                self.counted.answered(id, took);
                if reading.is_the_askers() {
                    self.counted.read(reading);
                    return driven.take(reading, now);
                }
            }
        }
        if matches!(reading, Reading::Certificate(_)) {
            let time = self.link.time.at(now.uptime);
            self.offer(&Reading::ClusterTime(time), now);
        }
        self.follow_runtime(reading, effects);
        self.offer(reading, now);
    }

    /// Tells what is known of both ends of the kubelet's way to the API server, when it has changed.
    fn look_both_ways(&mut self, now: Now) {
        let sight = Sight {
            healthz: if self.kubelet.answers() {
                Healthz::Answers
            } else if self.kubelet.is_silent(now) {
                Healthz::Silent
            } else {
                Healthz::Unknown
            },
            api_answers: self.link.is_well(),
            is_given_up: self.ready.is_given_up,
            heartbeat: self.ready.heartbeat,
            blames_runtime: self.ready.blames_runtime,
        };
        if sight != self.sight {
            self.sight = sight;
            self.offer(&Reading::Sight(sight), now);
        }
    }

    /// Tells the check of ourselves whether those answer without which we see less, when that has changed.
    fn look_around(&mut self, now: Now) {
        let changed = [self.helper.take_unheard(), self.bus.take_unheard()];
        if changed.contains(&true) {
            let word = |peer: &Peer| peer.known().map(|word| word.map_err(str::to_owned));
            let around = Surroundings {
                helper: word(&self.helper),
                bus: word(&self.bus),
            };
            self.offer(&Reading::Surroundings(around), now);
        }
    }

    /// Gives each check that is due its turn.
    pub(super) fn take_turns(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.look_both_ways(now);
        self.look_around(now);
        let soon = self.soon(now);
        for driven in &mut self.driven {
            if driven.open || !driven.is_due(now, soon) {
                continue;
            }
            let question = driven.check.turn(now);
            driven.stir();
            if let Some(question) = question {
                (driven.open, driven.asked_at) = (true, now.uptime);
                effects.push(Effect::Ask(driven.check.spec().id, question));
            }
        }
    }

    /// Whether one of them finds such a reason, shown or not.
    pub(super) fn finds(&self, is: impl Fn(Reason) -> bool) -> bool {
        let mut found = self.driven.iter().flat_map(|d| d.check.findings());
        found.any(|finding| is(finding.reason))
    }

    /// When the next of them is due (uptime).
    pub(super) fn next_turn(&self) -> Option<Duration> {
        let waiting = self.driven.iter().filter(|driven| !driven.open);
        waiting.filter_map(|driven| driven.due_at).min()
    }

    /// What has happened and is no state becomes an Event. `true` if anything has.
    pub(super) fn tell_news(&mut self, now: Now) -> bool {
        let mut any = false;
        let is_shadow = self.desired.choice().shadow;
        for driven in &mut self.driven {
            if !std::mem::take(&mut driven.stirred) {
                continue;
            }
            let kind = driven.check.spec().condition;
            while let Some(told) = driven.check.told() {
                any = true;
                self.counted.heard(told.news);
                if self.recent.len() == MAX_NEWS {
                    self.recent.pop_front();
                }
                self.recent.push_back(News {
                    name: told.news.spec().name.to_owned(),
                    note: bounded(&told.note, MAX_MESSAGE_BYTES),
                    warning: told.warning,
                    at: now.wall,
                });
                self.status_at = now.uptime;
                if is_shadow || !self.desired.choice().tells(kind) {
                    continue;
                }
                let notice = Notice {
                    warning: told.warning,
                    reason: told.news.spec().name.to_owned(),
                    action: "Observe",
                    note: told.note,
                    about: told.about,
                    pace: told.news.spec().pace,
                };
                self.events.record(notice, self.link.time.of(now));
            }
        }
        any
    }
}

impl Agent {
    /// Follows the kernel's log. It has a queue of its own: a storm of it must not fill the loop's.
    pub(super) fn watch_kernel(&mut self) {
        let (sender, events) = mpsc::channel(kmsg::QUEUE);
        let (root, clock) = (self.outside.root.clone(), self.outside.clock);
        self.tasks.spawn(kmsg::follow(root, clock, sender));
        self.forward(events, |event| Event::Observed(Reading::Kernel(event)));
    }

    /// Has a question answered; the answer comes back as [`Event::Answered`].
    pub(super) fn ask(&mut self, id: &'static str, question: Question) {
        let helper = self.outside.helper.clone();
        match question {
            Question::Limits => {
                let reading = Reading::Limits(self.limits.look());
                self.known.push_back(Event::Answered(id, reading));
            }
            Question::Fork => {
                self.spawn(async move {
                    let forked = helper.fork().await;
                    let reading = Reading::Fork(forked.map_err(|error| error.to_string()));
                    Event::Answered(id, reading)
                });
            }
            Question::Memory(depth) => self.look_at_memory(id, depth),
            Question::Clock => {
                self.spawn(async move {
                    let state = helper.clock().await.ok();
                    Event::Answered(id, Reading::Clock(state))
                });
            }
            Question::Storage => {
                self.spawn(async move {
                    let answer = helper.storage().await;
                    let reading = Reading::Storage(answer.map_err(|error| error.to_string()));
                    Event::Answered(id, reading)
                });
            }
            Question::Boot(request) => {
                self.spawn(async move {
                    let answer = helper.boot(request).await;
                    let reading = Reading::Boot(answer.map_err(|error| error.to_string()));
                    Event::Answered(id, reading)
                });
            }
            Question::Bootstrap(request) => {
                self.spawn(async move {
                    let answer = helper.bootstrap(request).await.map(Box::new);
                    let reading = Reading::Bootstrap(answer.map_err(|error| error.to_string()));
                    Event::Answered(id, reading)
                });
            }
            Question::Runtime(request) => {
                let outside = self.outside.clone();
                self.spawn(async move {
                    let answer = match helper.runtime(request).await {
                        Ok(answer) => Ok(doubted(answer, outside).await),
                        Err(error) => Err(unasked(&error)),
                    };
                    Event::Answered(id, Reading::Runtime(answer))
                });
            }
            Question::KernelState(ask) => self.look_at_kernel(id, ask),
            Question::Pod(uid) => self.name_pod(id, uid),
            Question::Certificate => self.read_certificate(id),
            Question::Sockets => {
                let reading = Reading::Sockets(self.sockets());
                self.known.push_back(Event::Answered(id, reading));
            }
            Question::Lease => self.read_lease(id),
        }
    }

    /// Of tasks it is asked on the blocking worker: the kernel may hold the locks that this takes for long.
    fn look_at_kernel(&mut self, id: &'static str, ask: KernelAsk) {
        let answered = move |state| Event::Answered(id, Reading::KernelState(state));
        if ask.is_empty() {
            let state = kernel::state(&self.outside.root, &ask);
            self.known.push_back(answered(state));
            return;
        }
        let outside = self.outside.clone();
        self.spawn(async move {
            let look = move || kernel::state(&outside.root, &ask);
            let state = tokio::task::spawn_blocking(look).await;
            answered(state.unwrap_or_default())
        });
    }

    /// Tells the checks when the wall clock is set.
    pub(super) fn watch_clock(&mut self) {
        let steps = match Steps::new() {
            Ok(steps) => steps,
            Err(error) => {
                warn!(%error, "the kernel does not say when the clock is set");
                return;
            }
        };
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let mut steps = steps;
            loop {
                let by = steps.next().await;
                let event = Event::Observed(Reading::ClockStep(Step { by }));
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
    }

    fn read_certificate(&mut self, id: &'static str) {
        let helper = self.outside.helper.clone();
        self.spawn(async move {
            let read = match helper.certificate().await {
                Ok(certificate) => Ok(Some(certificate)),
                Err(HelperError::Refused {
                    code: Code::NoCredential,
                    ..
                }) => Ok(None),
                Err(error) => Err(error.to_string()),
            };
            Event::Answered(id, Reading::Certificate(read))
        });
    }
}

/// That nobody listens counts if the kernel's list of sockets says so too. (The helper has a network of its own, and with it
/// another list.)
async fn doubted(answer: RuntimeAnswer, outside: Arc<Outside>) -> RuntimeAnswer {
    if !matches!(answer.heard, Heard::NoSocket | Heard::Refused)
        || answer.socket.as_os_str().is_empty()
    {
        return answer;
    }
    let socket = answer.socket.clone();
    let look = move || unix_sockets::is_listening(&outside.root, &socket);
    let doubt = match tokio::task::spawn_blocking(look).await {
        Ok(Ok(false)) => return answer,
        Ok(Ok(true)) => {
            "nobody takes a connection there, but the kernel lists a listener".to_owned()
        }
        Ok(Err(error)) => format!("nobody takes a connection there, and {error}"),
        Err(error) => error.to_string(),
    };
    let heard = Heard::Doubted(doubt);
    RuntimeAnswer { heard, ..answer }
}

/// What a check is told of a question that the helper did not answer.
fn unasked(error: &HelperError) -> Unasked {
    Unasked {
        is_away: !matches!(error, HelperError::Refused { .. }),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::{Spec, memory::Depth},
        health::Finding,
    };

    /// Wants its next look at that uptime.
    #[derive(Debug)]
    struct Wants(Duration);

    impl Check for Wants {
        fn spec(&self) -> Spec {
            checks::ALL[0]
        }
        fn take(&mut self, _: &Reading, _: Now) {}
        fn due_at(&self) -> Option<Duration> {
            Some(self.0)
        }
        fn turn(&mut self, _: Now) -> Option<Question> {
            Some(Question::Memory(Depth::Whole))
        }
        fn findings(&self) -> &[Finding] {
            &[]
        }
    }

    #[test]
    fn a_hasty_check_waits_for_its_time() {
        let ms = Duration::from_millis;
        let is_due = |asked_at, at, now, soon| {
            let mut driven = Driven::new(Box::new(Wants(ms(at))));
            driven.asked_at = ms(asked_at);
            let now = Now {
                uptime: ms(now),
                wall: jiff::Timestamp::UNIX_EPOCH,
            };
            driven.is_due(now, ms(soon))
        };
        // Ten times a second: the answer of the last look, a beat and anything else come between.
        for (now, due) in [(1001, false), (1050, false), (1091, true), (1100, true)] {
            assert_eq!(is_due(1000, 1100, now, now + 900), due, "{now}");
        }
        // Once a second it goes with the others.
        assert!(is_due(1000, 2000, 1950, 2050));
        // What was called for just now is due.
        assert!(is_due(1000, 1400, 1400, 1500));
    }
}
