//! systemd over D-Bus: the kubelet's unit and the units beside it (the container runtime's, those that it depends on), their state and their jobs,
//! told as they change. Reading only.
//!
//! One connection, match rules for these units and for the host's shutdown alone, and systemd alone is heard on it ([`bus`]). All signals
//! come through one stream, so that they keep the order in which systemd sent them: a job is known before the process that it ends is gone.

mod bus;
mod dropped;
mod ending;
mod following;
mod jobs;
mod properties;
mod questions;
mod rules;
mod signals;
#[doc(hidden)]
pub mod stream;
mod wire;

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};
use zbus::{Message, OwnedObjectPath, OwnedVariant};

pub(in crate::host) use self::bus::Systemd;
use self::{
    bus::Bus,
    jobs::Jobs,
    properties::{dependencies, job, merge},
    questions::Awaited,
    rules::subscribe,
    signals::Said,
};
pub use self::{
    dropped::{Cause, dropped},
    ending::{Ending, ending},
};
use crate::{
    checks::kubelet::{JobKind, Sign, Unit},
    clock::Clock,
    kubelet::snapshot::Loaded,
};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// What every way down leads through: poweroff, reboot, halt, kexec, soft-reboot.
const SHUTDOWN: &str = "shutdown.target";
const JOB: &str = "org.freedesktop.systemd1.Job";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Every call's deadline: a hung PID 1 answers nothing.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Connecting and reading the unit, all calls together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the bus is tried again: doubled from the first to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often it is told at most that others send signals to the agent.
const FOREIGN_SIGNALS_EVERY: Duration = Duration::from_secs(1);

/// How many units are followed at most.
const MAX_UNITS: usize = 12;

/// What the bus has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    /// The unit of this name is watched: of several that could run the kubelet the first that is there.
    Watching(String),
    /// Connected, and the unit's state has been read.
    Connected,
    /// Not connected, or no longer; tried again by itself.
    Lost(String),
    /// Something about the kubelet's unit.
    Sign(Sign),
    /// Something about a unit beside it, which has that name.
    Beside(String, Sign),
    /// Whether the host is going down: at the start if so, and when that changes.
    ShuttingDown(bool),
    /// What systemd has loaded for the unit: at the start, and after each time that it read its units anew.
    Loaded(Box<Loaded>),
}

/// Watches the first of these units that is there, the kubelet's, and those beside it, until nobody listens any more. Units may be added, none is taken away.
/// `anew` has their states asked for.
pub async fn watch(
    units: Vec<String>,
    (beside, anew): (watch::Receiver<Vec<String>>, Arc<Notify>),
    events: mpsc::Sender<BusEvent>,
) {
    let mut wait = RETRY.0;
    loop {
        let (connected, error) = session(&units, (beside.clone(), &anew), &events).await;
        if connected {
            wait = RETRY.0;
        }
        if events.send(BusEvent::Lost(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// One connection's life: whether it got as far as knowing the unit, and why it ended.
async fn session(
    units: &[String],
    (beside, anew): (watch::Receiver<Vec<String>>, &Notify),
    events: &mpsc::Sender<BusEvent>,
) -> (bool, String) {
    // A bus daemon that hangs accepts the connection and then says nothing.
    let open = Session::open(units, beside, events.clone());
    let open = tokio::time::timeout(OPEN_TIMEOUT, open);
    let mut session = match open.await {
        Ok(Ok(session)) => session,
        Ok(Err(e)) => return (false, e.to_string()),
        Err(_) => {
            return (
                false,
                format!("no answer within {} s", OPEN_TIMEOUT.as_secs()),
            );
        }
    };
    let Err(error) = session.run(anew).await;
    (true, error.to_string())
}

struct Session {
    bus: Bus,
    /// The names that the kubelet's unit may have.
    candidates: Vec<String>,
    /// The kubelet's first.
    units: Vec<Followed>,
    /// The names of those beside it.
    beside: watch::Receiver<Vec<String>>,
    events: mpsc::Sender<BusEvent>,
    questions: JoinSet<()>,
    awaited: Vec<Awaited>,
    jobs: Jobs,
    /// Whether the bus tells of jobs that change.
    hears_of_jobs: bool,
    /// When foreign signals are reported again at the soonest (uptime).
    foreign_signals_at: Duration,
}

/// A unit that is followed.
struct Followed {
    name: String,
    path: OwnedObjectPath,
    unit: Unit,
    is_kubelets: bool,
}

impl Followed {
    fn event(&self, sign: Sign) -> BusEvent {
        if self.is_kubelets {
            BusEvent::Sign(sign)
        } else {
            BusEvent::Beside(self.name.clone(), sign)
        }
    }
}

impl Session {
    async fn open(
        units: &[String],
        beside: watch::Receiver<Vec<String>>,
        events: mpsc::Sender<BusEvent>,
    ) -> zbus::Result<Self> {
        let mut bus = Bus::connect(CALL_TIMEOUT).await?;
        let connection = bus.connection();
        bus.during(subscribe(&connection)).await?;
        let mut session = Self {
            bus,
            candidates: units.to_vec(),
            units: Vec::new(),
            beside,
            events,
            questions: JoinSet::new(),
            awaited: Vec::new(),
            jobs: Jobs::default(),
            hears_of_jobs: false,
            foreign_signals_at: Duration::ZERO,
        };
        let unit = session.choose().await?;
        session.add(&unit).await?;
        session.say(BusEvent::Watching(unit)).await;
        session.subscribe_to_signals().await?;
        session.read_unit(0).await?;
        session.ask_system_state();
        session.say(BusEvent::Connected).await;
        session.follow_beside().await;
        Ok(session)
    }

    async fn run(&mut self, anew: &Notify) -> zbus::Result<Infallible> {
        loop {
            let said = tokio::select! {
                biased;
                said = self.bus.next() => said?,
                Ok(()) = self.beside.changed() => {
                    self.follow_beside().await;
                    continue;
                }
                () = anew.notified() => {
                    self.ask_in_order().await?;
                    continue;
                }
            };
            self.report_foreign_signals().await;
            if let Some((said, message)) = said {
                self.heard(said, &message).await?;
            }
        }
    }

    /// Says that somebody else than systemd speaks to us: what systemd says may come late then, or get lost.
    async fn report_foreign_signals(&mut self) {
        if !self.bus.take_has_dropped() {
            return;
        }
        let uptime = Clock.now().uptime;
        if uptime < self.foreign_signals_at {
            return;
        }
        self.foreign_signals_at = uptime + FOREIGN_SIGNALS_EVERY;
        for index in 0..self.units.len() {
            self.tell(index, Sign::ForeignSignals).await;
        }
    }

    async fn subscribe_to_signals(&mut self) -> zbus::Result<()> {
        let systemd = self.bus.systemd();
        let asked = self.bus.during(systemd.manager("Subscribe", &()));
        asked.await.map(drop)
    }

    async fn heard(&mut self, said: Said, message: &Message) -> zbus::Result<()> {
        match said {
            Said::Changed(path, changed) => {
                let is_its = |one: &Followed| one.path == path;
                if let Some(index) = self.units.iter().position(is_its) {
                    self.merge(index, &changed).await;
                }
            }
            Said::JobNew(id, path, unit) => {
                if unit == SHUTDOWN {
                    // Taken for what it is nearly always, until systemd says that it is being called off.
                    self.say(BusEvent::ShuttingDown(true)).await;
                    self.ask_system_state();
                } else if let Some(index) = self.named(&unit) {
                    self.jobs.began(id, unit);
                    self.tell(index, Sign::Job(id, JobKind::Unasked)).await;
                    self.ask_job_type(index, id, path);
                }
            }
            Said::JobChanged(id) => {
                if let Some(unit) = self.jobs.changed(id)
                    && let Some(index) = self.named(&unit)
                {
                    self.tell(index, Sign::JobAgain(id)).await;
                }
            }
            Said::JobRemoved(id, unit) => {
                self.jobs.ended(id);
                if unit == SHUTDOWN {
                    self.ask_system_state();
                } else if let Some(index) = self.named(&unit) {
                    self.tell(index, Sign::JobDone(id)).await;
                }
            }
            // After a reload or a re-execution every property may differ, unannounced.
            Said::Reloading | Said::Owner(_) => {
                self.subscribe_to_signals().await.ok();
                self.choose_again().await?;
                for index in 0..self.units.len() {
                    self.read_unit(index).await?;
                }
                self.follow_beside().await;
            }
            Said::Answer => self.answered(message).await,
            Said::Nothing => {}
        }
        Ok(())
    }

    async fn read_unit(&mut self, index: usize) -> zbus::Result<()> {
        self.tell(index, Sign::JobsUntold).await;
        for interface in [UNIT, SERVICE] {
            let (systemd, path) = (self.bus.systemd(), self.units[index].path.clone());
            let asked = systemd.call(path.as_str(), PROPERTIES, "GetAll", &(interface));
            let reply = self.bus.during(asked).await?;
            let body = reply.body();
            let properties: HashMap<String, OwnedVariant> = body.deserialize()?;
            self.read(index, interface, &properties).await;
        }
        self.tell_unit(index).await;
        let followed = &self.units[index];
        if followed.is_kubelets {
            self.ask_what_is_loaded(followed.path.clone());
        }
        Ok(())
    }

    /// Takes in all properties of one interface of a unit.
    async fn read(
        &mut self,
        index: usize,
        interface: &str,
        properties: &HashMap<String, OwnedVariant>,
    ) {
        merge(&mut self.units[index].unit, properties);
        if interface == UNIT {
            self.units[index].unit.dependencies = dependencies(properties);
        }
        // A job that was queued before we listened: `(uo)`, number 0 if there is none.
        if let Some((id, path)) = properties.get("Job").and_then(job)
            && id != 0
        {
            self.tell(index, Sign::Job(id, JobKind::Unasked)).await;
            self.ask_job_type(index, id, path);
        }
    }

    async fn tell_unit(&self, index: usize) {
        let sign = Sign::Unit(self.units[index].unit.clone());
        self.tell(index, sign).await;
    }

    async fn merge(&mut self, index: usize, changed: &HashMap<String, OwnedVariant>) {
        let followed = &mut self.units[index];
        let before = followed.unit.clone();
        merge(&mut followed.unit, changed);
        // Each transition comes two to six times over.
        if followed.unit != before {
            self.tell_unit(index).await;
        }
    }

    fn named(&self, unit: &str) -> Option<usize> {
        self.units.iter().position(|one| one.name == unit)
    }

    async fn tell(&self, index: usize, sign: Sign) {
        self.say(self.units[index].event(sign)).await;
    }

    async fn say(&self, event: BusEvent) {
        // Nobody listening means that the agent is stopping.
        self.events.send(event).await.ok();
    }
}
