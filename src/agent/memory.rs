//! Looks at the host's memory for the check, and keeps the pods' names for whoever has to name one.
//!
//! The looks are made here and now, for none of these reads waits for anything. The names come from the helper, in calm
//! times: whoever grows while memory runs out, or is killed for it, must be named without asking anybody.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;
use tracing::debug;

use super::{Agent, event::Event};
use crate::{
    checks::{
        Reading,
        memory::{Depth, Grower},
    },
    helper::pods::PodName,
    host::{helper::HelperClient, stall_triggers::StallTriggers},
};

/// How often the names are asked for in calm times.
const NAMES_EVERY: Duration = Duration::from_mins(10);
/// So many times the usual our watchdog waits while memory moves.
const PATIENCE: u32 = 6;
/// The pods' names by their uids; as many as the helper tells.
#[derive(Debug, Default)]
pub(super) struct PodNames {
    known: Arc<Mutex<BTreeMap<String, String>>>,
    /// When they were asked for last (uptime).
    asked_at: Option<Duration>,
}

impl PodNames {
    fn are_older_than(&self, age: Duration, now: Duration) -> bool {
        self.asked_at.is_none_or(|at| now.saturating_sub(at) >= age)
    }

    fn of(&self, uid: &str) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(uid).cloned()
    }

    fn keep(known: &Mutex<BTreeMap<String, String>>, pods: Vec<PodName>) {
        let named = |pod: PodName| (pod.uid, format!("{}/{}", pod.namespace, pod.name));
        let pods = pods.into_iter().map(named).collect();
        *known.lock().unwrap_or_else(PoisonError::into_inner) = pods;
    }

    /// What is done to learn them anew. Without a helper a pod has its uid for a name.
    fn refresh(
        &mut self,
        helper: HelperClient,
        now: Duration,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.asked_at = Some(now);
        let known = self.known.clone();
        async move {
            match helper.pods().await {
                Ok(pods) => Self::keep(&known, pods),
                Err(error) => debug!(%error, "the pods' names are not to be had"),
            }
        }
    }
}

impl Agent {
    /// Has the kernel call when tasks begin to wait for memory. Where it does not, the check's own looks have to do.
    pub(super) fn watch_stalls(&mut self) {
        let armed = StallTriggers::arm(&self.outside.root);
        self.state.stall_triggers = Some(armed.is_ok());
        match armed {
            Ok(triggers) => {
                let (sender, calls) = mpsc::channel(1);
                self.tasks.spawn(triggers.follow(sender));
                self.forward(calls, |()| Event::Observed(Reading::MemoryStalls));
            }
            Err(error) => {
                debug!(%error, "the kernel does not call when tasks wait for memory; it is looked at each second all the same");
            }
        }
    }

    pub(super) fn look_at_memory(&mut self, id: &'static str, depth: Depth) {
        // Before Linux 6.5 the kernel calls only whoever has CAP_SYS_RESOURCE: then how long tasks wait is read each time.
        let is_called = self.state.stall_triggers == Some(true);
        let depth = match depth {
            Depth::Head if !is_called => Depth::Level,
            asked => asked,
        };
        let at = self.outside.clock.now().uptime;
        let kubelet = self.watched.as_ref().map(|watched| &watched.process);
        let runtime = self.runtime.as_ref().map(|watched| &watched.process);
        self.memory.follow(kubelet, runtime);
        let look = self.memory.look(depth, at);
        let was_resting = self.groups.is_resting();
        match (&look, depth) {
            (Ok(sample), Depth::Whole) => {
                if self.groups.look_while_it_moves(sample) {
                    let grower = self.groups.grower(|uid| self.pod_names.of(uid));
                    self.tell_grower(grower);
                }
            }
            _ => self.groups.rest(at),
        }
        self.ask_for_patience(was_resting);
        // In calm times, once more as memory begins to move, and not again until that is over.
        let age = match (was_resting, self.groups.is_resting()) {
            (_, true) => NAMES_EVERY,
            (true, false) => Duration::ZERO,
            (false, false) => Duration::MAX,
        };
        if self.pod_names.are_older_than(age, at) {
            let helper = self.outside.helper.clone();
            self.tasks.spawn(self.pod_names.refresh(helper, at));
        }
        let answer = Event::Answered(id, Reading::Memory(look));
        self.known.push_back(answer);
    }

    /// Where memory runs out whatever we ask of the kernel may wait for some to be freed, for seconds: to be ended for that by
    /// systemd, and started anew from a disk that everybody waits for, would leave the host without us when it matters.
    fn ask_for_patience(&self, was_resting: bool) {
        let Some((fed_every, _)) = self.state.watchdog else {
            return;
        };
        let usual = 2 * fed_every;
        match (was_resting, self.groups.is_resting()) {
            (true, false) => self.outside.notifier.watchdog_within(PATIENCE * usual),
            (false, true) => self.outside.notifier.watchdog_within(usual),
            _ => {}
        }
    }

    fn tell_grower(&mut self, grower: Option<Grower>) {
        let who = grower.as_ref().map(|grower| &grower.who);
        if self.grower != who.cloned() {
            debug!(?grower, "who takes the memory");
            self.grower = who.cloned();
        }
        let told = Event::Observed(Reading::Grower(grower));
        self.known.push_back(told);
    }

    /// The name of the pod with that uid, from what is known; only of one that is not, the helper is asked.
    pub(super) fn name_pod(&mut self, id: &'static str, uid: String) {
        if let Some(name) = self.pod_names.of(&uid) {
            let answer = Event::Answered(id, Reading::Pod(Some(name)));
            return self.known.push_back(answer);
        }
        let now = self.outside.clock.now().uptime;
        let known = self.pod_names.known.clone();
        let learnt = self.pod_names.refresh(self.outside.helper.clone(), now);
        self.spawn(async move {
            learnt.await;
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            Event::Answered(id, Reading::Pod(known.get(&uid).cloned()))
        });
    }
}
