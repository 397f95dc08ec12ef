//! Effects are set going: what is read of the process, the disk's one write, and who performs the rest.
//!
//! Nothing here waits: results come back as events.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::AbortHandle};
use tracing::{debug, warn};

use super::{
    Agent, QUEUE,
    event::{self, Effect, Event},
};
use crate::{
    checks::kubelet::{Found, Probe, Process},
    clock::Now,
    helper::protocol::ConfigRequest,
    host::{
        network,
        process::{self, Seen, Watched, Where},
        strain::Gauge,
        systemd,
    },
    pause::{self, Pause},
};

/// Time before each of the questions to systemd that follow an end, all of them within the second for which it is waited.
const ASK_AFTER: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
];

impl Agent {
    pub(super) fn perform(&mut self, effect: Effect, uptime: Duration) {
        match effect {
            Effect::Apply(apply) => self.apply(apply),
            Effect::Look(group) => self.look(group),
            Effect::Watch(process) => self.watch(process),
            Effect::Probe(pid, url) => self.probe(pid, &url, uptime),
            Effect::ReadState(process) => self.read_state(&process),
            Effect::ReadStrain(process, group) => self.read_strain(process, &group, uptime),
            Effect::ReadRuntimeState => self.read_runtime_state(uptime),
            Effect::WatchRuntime(process) => self.watch_runtime(process),
            Effect::AskUnits => self.ask_units(),
            Effect::FollowUnit(unit) => self.follow_unit(unit),
            Effect::AskFacts(pid) => {
                let helper = self.outside.helper.clone();
                self.spawn(async move { Event::Facts(pid, helper.kubelet_with(pid).await) });
            }
            Effect::Sample(pid, healthz) => self.sample(pid, healthz),
            Effect::AskWords(run) => self.ask_words(run),
            Effect::Ask(check, question) => self.ask(check, question),
            Effect::FollowConfig(question, request) => self.follow_config(question, *request),
            Effect::LookForPause => self.look_for_pause(),
            Effect::LookForPackages => {
                let files = self.lock_files.get();
                let manager = files.and_then(|files| files.held(&self.outside.root));
                self.known.push_back(Event::Packages(manager));
            }
            Effect::FindIdentity => self.find_identity(),
            Effect::Disconnect => self.disconnect(),
            Effect::Connect(node) => self.connect(&node),
            Effect::ReadNode => self.read_node(),
            Effect::WatchNode(number, version) => self.watch_node(number, version),
            Effect::Rehearse(apply) => self.rehearse(*apply),
            Effect::Taint(task) => self.taint(*task),
            Effect::TellEvent(task) => self.tell_event(task),
            Effect::SaveLedger(kept) => self.disk.ledger = Some(kept),
            Effect::WriteStatus(mut status) => {
                status.pid = Some(std::process::id());
                self.disk.status = Some(status);
            }
            Effect::WriteMetrics => self.expose_as_file(),
            Effect::NotifyStatus(line) => self.outside.notifier.status(&line),
            Effect::NotifyWatchdog => self.outside.notifier.watchdog(),
            // The turn has taken these out.
            Effect::LookWhetherItDies(_) | Effect::Exit => {}
        }
    }

    pub(super) fn spawn(
        &mut self,
        work: impl Future<Output = Event> + Send + 'static,
    ) -> AbortHandle {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            // The loop has ended: nobody wants the result.
            sender.send(work.await).await.ok();
        })
    }

    /// Hands on what comes on a channel of its own, until nobody listens any more.
    pub(super) fn forward<T: Send + 'static>(
        &mut self,
        mut from: mpsc::Receiver<T>,
        event: impl Fn(T) -> Event + Send + 'static,
    ) {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            while let Some(told) = from.recv().await {
                if sender.send(event(told)).await.is_err() {
                    return;
                }
            }
        });
    }

    pub(super) fn watch_unit(&mut self) {
        let (sender, events) = mpsc::channel(QUEUE);
        let units = self.settings.kubelet.units();
        self.tasks.spawn(systemd::watch(
            units,
            (self.beside.subscribe(), Arc::clone(&self.anew)),
            sender,
        ));
        self.forward(events, Event::Bus);
    }

    /// Several times: systemd may notice an end after it was asked.
    fn ask_units(&mut self) {
        let anew = Arc::clone(&self.anew);
        self.tasks.spawn(async move {
            for wait in ASK_AFTER {
                tokio::time::sleep(wait).await;
                anew.notify_one();
            }
        });
    }

    /// One question is open at a time: a new one takes the place of the last.
    pub(super) fn follow_config(&mut self, question: u64, mut request: ConfigRequest) {
        if let Some(last) = self.following_config.take() {
            last.abort();
        }
        let (helper, sender) = (self.outside.helper.clone(), self.sender.clone());
        let outside = self.outside.clone();
        self.following_config = Some(self.tasks.spawn(async move {
            // A table of routes may be long.
            let reading = tokio::task::spawn_blocking(move || network::read(&outside.root));
            request.network = reading.await.ok();
            let (answers_to, mut answers) = mpsc::channel(1);
            let forwarding = async {
                while let Some(answer) = answers.recv().await {
                    let event = Event::Config(question, Ok(answer));
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            };
            let (ended, ()) = tokio::join!(helper.follow_config(request, answers_to), forwarding);
            if let Err(error) = ended {
                sender.send(Event::Config(question, Err(error))).await.ok();
            }
        }));
    }

    pub(super) fn look(&mut self, group: String) {
        let place = match &self.settings.kubelet.pid_file {
            Some(path) => Where::PidFile(path.clone()),
            None => Where::ControlGroup(group),
        };
        let root = &self.outside.root;
        let found = process::find_kubelet(root, &place);
        let carried = match &found {
            Found::One(process) => Some((process.pid, process::carrier(root, process))),
            Found::None(_) | Found::Many(_) => None,
        };
        self.known.push_back(Event::Looked(found));
        let carried =
            carried.map(|(pid, carrier)| Event::Closer(event::Closer::Carried(pid, carrier)));
        self.known.extend(carried);
    }

    /// The folder is in memory.
    pub(super) fn look_for_pause(&mut self) {
        let (root, dir) = (&self.outside.root, &self.outside.runtime_dir);
        if !self.runtime_folder.may_have_changed(root) {
            return;
        }
        let stamp = root.stamp(dir.join(pause::FILE_NAME));
        if self.pause_seen != stamp {
            self.pause_seen = stamp;
            let read = Pause::read(root, dir).map_err(|e| e.to_string());
            self.known.push_back(Event::Pause(read));
        }
    }

    pub(super) fn watch(&mut self, process: Process) {
        let pid = process.pid;
        match Watched::open(&self.outside.root, process) {
            Ok(Some(watched)) => self.watched = Some(watched),
            Ok(None) => self.known.push_back(Event::Gone(pid)),
            // Its state is read each second all the same, which shows its end too, only later.
            Err(e) => {
                warn!(pid, error = %e, "the kubelet's pidfd cannot be had; its end will be seen up to a second late");
            }
        }
    }

    /// It ends within [`PROBE_TIMEOUT`].
    pub(super) fn probe(&mut self, pid: i32, url: &str, started: Duration) {
        self.probing = Some((pid, started));
        self.healthz.start(url);
    }

    pub(super) fn probed(&mut self, probe: Probe) -> Event {
        let Some((pid, started)) = self.probing.take() else {
            return Event::Tick; // none is under way, so none ends
        };
        debug!(pid, ?probe, "probed");
        Event::Probed {
            pid,
            started,
            probe,
        }
    }

    /// The alarm is also the deadline of the probe that is under way: a timer of tokio's would wake the loop once more.
    pub(super) fn rung(&mut self, probe_ends: Option<Duration>) -> Event {
        let now = self.outside.clock.now();
        if probe_ends.is_some_and(|at| now.uptime >= at) {
            let probe = self.healthz.overdue();
            self.healthz.give_up();
            return self.probed(probe);
        }
        Event::Tick
    }

    pub(super) fn read_state(&mut self, process: &Process) {
        let event = match self.row_of(process) {
            Some(seen) => {
                if seen.is_dying {
                    self.known.push_back(Event::Dying(process.pid, true));
                }
                Event::ProcessState(process.pid, seen.state)
            }
            None => Event::Gone(process.pid),
        };
        self.known.push_back(event);
    }

    /// What is told of a kill may hang on whether a process is dying: that is looked at first, and what comes of it goes before
    /// whatever else is to be done.
    pub(super) fn look_whether_it_dies(&mut self, effects: &mut Vec<Effect>, now: Now) {
        let mut looks = effects.extract_if(.., |e| matches!(e, Effect::LookWhetherItDies(_)));
        let Some(Effect::LookWhetherItDies(process)) = looks.next() else {
            return;
        };
        drop(looks);
        match self.row_of(&process) {
            Some(seen) => {
                let dying = Event::Dying(process.pid, seen.is_dying);
                let first = self.state.apply(dying, now);
                effects.splice(..0, first);
            }
            // An end waits for the queue.
            None => self.known.push_back(Event::Gone(process.pid)),
        }
    }

    fn row_of(&self, process: &Process) -> Option<Seen> {
        let watched = self.watched.as_ref().filter(|w| w.process == *process);
        // Without a pidfd its row is looked up anew each time.
        watched.map_or_else(|| process::seen(&self.outside.root, process), Watched::seen)
    }

    pub(super) fn read_strain(&mut self, process: Process, group: &str, uptime: Duration) {
        let pid = process.pid;
        self.gauge.take_if(|gauge| *gauge.process() != process);
        let root = &self.outside.root;
        let open = || Gauge::open(root, process, group);
        let strain = self.gauge.get_or_insert_with(open).read(uptime);
        self.known.push_back(Event::Strain(pid, strain));
    }

    /// One write at a time, on the blocking worker: the folder is in memory, but memory may be short.
    pub(super) fn write(&mut self) {
        let nothing = self.disk.ledger.is_none()
            && self.disk.status.is_none()
            && self.disk.textfile.is_none();
        let busy = self
            .disk
            .busy
            .as_ref()
            .is_some_and(|write| !write.is_finished());
        if nothing || busy {
            return;
        }
        let outside = self.outside.clone();
        let (ledger, status) = (self.disk.ledger.take(), self.disk.status.take());
        let write_textfile = self.textfile_writer();
        self.disk.busy = Some(tokio::task::spawn_blocking(move || {
            let kept = ledger.map_or(Ok(()), |kept| outside.ledger.save(kept));
            let written = status.map_or(Ok(()), |status| {
                status.write(&outside.root, &outside.runtime_dir)
            });
            if let Err(e) = kept {
                warn!(error = %e, "the ledger could not be written");
            }
            if let Err(e) = written {
                warn!(error = %e, "the status file could not be written");
            }
            write_textfile();
        }));
    }
}
