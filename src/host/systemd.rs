//! systemd over D-Bus: the kubelet's unit and the units beside it (the container runtime's), their state and their jobs,
//! told as they change. Reading only.
//!
//! One connection, match rules for these units and for the host's shutdown alone. All signals come through one stream, so that they keep the
//! order in which systemd sent them: a job is known before the process that it ends is gone.

mod properties;
mod questions;
mod rules;

use std::{collections::HashMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::debug;
use zbus::{
    Connection, Message, MessageStream, OwnedObjectPath, OwnedVariant,
    fdo::PropertiesProxy,
    message::Type,
    names::{InterfaceName, MemberName},
};

use self::{
    properties::{get, job, merge, text},
    questions::{call, next},
    rules::{follow, subscribe},
};
use super::loaded;
use crate::{
    checks::kubelet::{JobKind, Sign, Unit},
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

/// How many units are followed at most.
const MAX_UNITS: usize = 8;

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
pub async fn watch(
    units: Vec<String>,
    beside: watch::Receiver<Vec<String>>,
    events: mpsc::Sender<BusEvent>,
) {
    let mut wait = RETRY.0;
    loop {
        let (connected, error) = session(&units, beside.clone(), &events).await;
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
    beside: watch::Receiver<Vec<String>>,
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
    let error = match session.run().await {
        Ok(()) => "the bus closed the connection".to_owned(),
        Err(e) => e.to_string(),
    };
    (true, error)
}

struct Session {
    connection: Connection,
    messages: MessageStream,
    /// The names that the kubelet's unit may have.
    candidates: Vec<String>,
    /// The kubelet's first.
    units: Vec<Followed>,
    /// The names of those beside it.
    beside: watch::Receiver<Vec<String>>,
    events: mpsc::Sender<BusEvent>,
    questions: JoinSet<()>,
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
        let connection = zbus::connection::Builder::system()
            .method_timeout(CALL_TIMEOUT)
            .build()
            .await?;
        let messages = MessageStream::from(&connection);
        subscribe(&connection).await?;
        let mut session = Self {
            connection,
            messages,
            candidates: units.to_vec(),
            units: Vec::new(),
            beside,
            events,
            questions: JoinSet::new(),
        };
        let unit = session.choose().await?;
        session.add(&unit).await?;
        session.say(BusEvent::Watching(unit)).await;
        call(&session.connection, "Subscribe", &()).await?;
        session.read_unit(0).await?;
        session.ask_system_state();
        session.say(BusEvent::Connected).await;
        session.follow_beside().await;
        Ok(session)
    }

    async fn run(&mut self) -> zbus::Result<()> {
        loop {
            let message = tokio::select! {
                biased;
                message = next(&mut self.messages) => message,
                Ok(()) = self.beside.changed() => {
                    self.follow_beside().await;
                    continue;
                }
            };
            let Some(message) = message else {
                return Ok(());
            };
            let message = message?;
            while self.questions.try_join_next().is_some() {}
            if message.message_type() == Type::Signal {
                self.signal(&message).await?;
            }
        }
    }

    /// The kubelet's unit: the first of those it may be that is there, else the first.
    async fn choose(&self) -> zbus::Result<String> {
        let is_open = self.candidates.len() > 1;
        for unit in self.candidates.iter().filter(|_| is_open) {
            let loaded = call(&self.connection, "LoadUnit", &(unit.as_str())).await?;
            let path: OwnedObjectPath = loaded.body().deserialize()?;
            let state = get(&self.connection, path.as_str(), UNIT, "LoadState").await?;
            if text(&state) == "loaded" {
                return Ok(unit.clone());
            }
        }
        Ok(self.candidates.first().cloned().unwrap_or_default())
    }

    /// Units have been read anew, and the kubelet's was not there: perhaps another one is now.
    async fn choose_again(&mut self) -> zbus::Result<()> {
        if self.units[0].unit.load_state == "loaded" {
            return Ok(());
        }
        let unit = self.choose().await?;
        if self.named(&unit).is_none() {
            let index = self.add(&unit).await?;
            self.units[index].is_kubelets = true;
            self.units.swap_remove(0); // the new one takes its place
            self.say(BusEvent::Watching(unit)).await;
        }
        Ok(())
    }

    /// Has the bus tell of a unit from now on; its place among those that are followed.
    async fn add(&mut self, name: &str) -> zbus::Result<usize> {
        let loaded = call(&self.connection, "LoadUnit", &(name)).await?;
        let path: OwnedObjectPath = loaded.body().deserialize()?;
        follow(&self.connection, name, &path).await?;
        self.units.push(Followed {
            name: name.to_owned(),
            path,
            unit: Unit::default(),
            is_kubelets: self.units.is_empty(),
        });
        Ok(self.units.len() - 1)
    }

    /// Those that are asked for and not followed yet. One that cannot be had is no reason to lose the others.
    async fn follow_beside(&mut self) {
        let names = self.beside.borrow_and_update().clone();
        for name in names {
            let known = self.units.iter().any(|one| one.name == name);
            if known || self.units.len() >= MAX_UNITS {
                continue;
            }
            let followed = match self.add(&name).await {
                Ok(index) => self.read_unit(index).await,
                Err(e) => Err(e),
            };
            if let Err(e) = followed {
                debug!(unit = name, error = %e, "a unit cannot be followed");
            }
        }
    }

    async fn signal(&mut self, message: &Message) -> zbus::Result<()> {
        let header = message.header();
        let member = header.member().map(MemberName::as_str).unwrap_or_default();
        match member {
            "PropertiesChanged" => {
                let is_its = |one: &Followed| header.path().is_some_and(|p| *p == *one.path);
                let Some(index) = self.units.iter().position(is_its) else {
                    return Ok(());
                };
                let body = message.body();
                let (_, changed, _): (String, HashMap<String, OwnedVariant>, Vec<String>) =
                    body.deserialize()?;
                self.merge(index, &changed).await;
            }
            "JobNew" => {
                let (id, path, unit): (u32, OwnedObjectPath, String) =
                    message.body().deserialize()?;
                if unit == SHUTDOWN {
                    // Taken for what it is nearly always, until systemd says that it is being called off.
                    self.say(BusEvent::ShuttingDown(true)).await;
                    self.ask_system_state();
                    return Ok(());
                }
                if let Some(index) = self.named(&unit) {
                    self.tell(index, Sign::Job(id, JobKind::Unasked)).await;
                    self.ask_job_type(index, id, path);
                }
            }
            "JobRemoved" => {
                let (id, _, unit, _): (u32, OwnedObjectPath, String, String) =
                    message.body().deserialize()?;
                if unit == SHUTDOWN {
                    self.ask_system_state();
                    return Ok(());
                }
                if let Some(index) = self.named(&unit) {
                    self.tell(index, Sign::JobDone(id)).await;
                }
            }
            // After a reload or a re-execution every property may differ, unannounced.
            "Reloading" | "NameOwnerChanged" => {
                call(&self.connection, "Subscribe", &()).await.ok();
                self.choose_again().await?;
                for index in 0..self.units.len() {
                    self.read_unit(index).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn read_unit(&mut self, index: usize) -> zbus::Result<()> {
        self.tell(index, Sign::JobsUntold).await;
        for interface in [UNIT, SERVICE] {
            let properties = PropertiesProxy::builder(&self.connection)
                .destination(SYSTEMD)
                .path(self.units[index].path.clone())
                .build()
                .await?
                .get_all(InterfaceName::from_static_str_unchecked(interface))
                .await?;
            merge(&mut self.units[index].unit, &properties);
            // A job that was queued before we listened: `(uo)`, number 0 if there is none.
            if let Some((id, path)) = properties.get("Job").and_then(job)
                && id != 0
            {
                self.tell(index, Sign::Job(id, JobKind::Unasked)).await;
                self.ask_job_type(index, id, path);
            }
        }
        let followed = &self.units[index];
        self.tell(index, Sign::Unit(followed.unit.clone())).await;
        if !followed.is_kubelets {
            return Ok(());
        }
        // Not waited for: an end of the process that comes meanwhile matters more.
        let (connection, path) = (self.connection.clone(), followed.path.clone());
        let events = self.events.clone();
        self.questions.spawn(async move {
            match loaded::read(&connection, &path).await {
                Ok(loaded) => {
                    events.send(BusEvent::Loaded(Box::new(loaded))).await.ok();
                }
                Err(e) => debug!(error = %e, "what systemd has loaded could not be read"),
            }
        });
        Ok(())
    }

    async fn merge(&mut self, index: usize, changed: &HashMap<String, OwnedVariant>) {
        let followed = &mut self.units[index];
        let before = followed.unit.clone();
        merge(&mut followed.unit, changed);
        // Each transition comes two to six times over.
        if followed.unit != before {
            let sign = Sign::Unit(followed.unit.clone());
            self.tell(index, sign).await;
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
