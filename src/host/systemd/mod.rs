//! systemd over D-Bus (org.freedesktop.systemd1(5)): the state of a unit and its jobs, as they change.
//!
//! Two connections. Signals arrive on one, which is read all the time; methods are called on the other. On one connection a queue
//! full of signals would keep the answer to a call from being read.
//!
//! The bus delivers a signal that is addressed to us from any sender, so a signal counts only if its sender is the unique name
//! that owns `org.freedesktop.systemd1` ([`signal`]).

mod loaded;
mod required;
mod signal;
pub mod transient;
mod unit;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zbus::connection::Builder;
use zbus::fdo::DBusProxy;
use zbus::message::Type;
use zbus::{Connection, MatchRule, MessageStream, OwnedObjectPath, OwnedVariant};

pub use self::loaded::{Unit, loaded, major, units};
use self::signal::{BUS, BUS_PATH, MANAGER, MANAGER_PATH, PROPERTIES, SERVICE, SYSTEMD, Signal, UNIT};
pub use self::unit::{LastProcess, UnitState};
use self::unit::{MAX_DEPENDENCIES, dependencies, job_id, merge, read};
use super::clock::{Timer, next_multiple, uptime};
use crate::trouble::{Trouble, Troubles};

const ALREADY_SUBSCRIBED: &str = "org.freedesktop.systemd1.AlreadySubscribed";
const JOB: &str = "org.freedesktop.systemd1.Job";
/// When the unit last changed its state, in microseconds since boot.
const CHANGED_AT: &str = "StateChangeTimestampMonotonic";
/// A call's deadline: a PID 1 that hangs answers nothing.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The deadline of all that is asked when a connection is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// Messages that wait in zbus until they are handled.
const MAX_QUEUED: NonZeroUsize = NonZeroUsize::new(64).expect("it is not 0");
/// Whether the unit has changed is also asked this often, in case a signal was lost.
const ASK_EVERY: Duration = Duration::from_mins(1);
/// Wait before the bus is tried again: doubled from the first to the last.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

type Properties = HashMap<String, OwnedVariant>;

/// What a job does to the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Not known yet: a signal announces a job by its number alone.
    Unread,
    Stop,
    /// In any of its forms, such as try-restart.
    Restart,
    Start,
    /// Anything else, which ends no process.
    Other,
}

/// A service that the unit requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub unit: String,
    /// Whether systemd stops the unit when this service fails (`BindsTo=`).
    pub is_bound: bool,
    pub active_state: String,
    /// `Result` of its last run; another value than `success` means that it was not stopped by a job.
    pub result: String,
    /// Whether it ends, or systemd waits to restart it by `Restart=`, and nobody has asked for that by a job.
    pub ends_by_itself: bool,
}

/// What is known of systemd.
#[derive(Debug, Clone, PartialEq)]
pub enum BusEvent {
    /// Connected: the unit's name and state, and the job that it has. What was known of jobs before is void.
    Read {
        unit: String,
        state: UnitState,
        job: Option<u32>,
        /// The services with which systemd stops the unit, as they are now.
        dependencies: Vec<Dependency>,
    },
    /// The unit is about to be read; signals are not handled until that is done.
    Reading,
    /// The unit's state has changed.
    Changed(UnitState),
    /// A job of the unit's was queued, or its kind became known.
    Job {
        id: u32,
        kind: JobKind,
        /// Of a stop job: the same services, as they were when it was read.
        dependencies: Vec<Dependency>,
    },
    JobRemoved {
        id: u32,
        /// `done`, `canceled`, `timeout`, `failed`, `dependency`, `skipped` …
        result: String,
    },
    /// By its own settings, systemd is not to start the unit at present: what it requires is not to run.
    Declined,
    /// Not connected; tried again.
    Lost,
}

/// How likely a unit is the one that is meant, of several that are installed: 0 for one that runs, 1 for one that starts at boot, 2 for
/// one that is there. RKE2 installs the units of a server and of an agent. None if systemd has not loaded it.
pub fn rank(load_state: &str, active_state: &str, unit_file_state: &str) -> Option<u8> {
    match (load_state, active_state, unit_file_state) {
        ("loaded", "active" | "activating" | "reloading" | "deactivating", _) => Some(0),
        ("loaded", _, "enabled" | "enabled-runtime" | "alias") => Some(1),
        ("loaded", ..) => Some(2),
        _ => None,
    }
}

/// Watches the best of `units` by [`rank`], the first of equal ones, until the channel is closed.
pub async fn watch(units: Vec<String>, events: mpsc::Sender<BusEvent>, troubles: Troubles) {
    let mut wait = RETRY.0;
    while !events.is_closed() {
        let session = async {
            let (mut session, signals) = within(OPEN_TIMEOUT, Session::open(&units, events.clone())).await?;
            troubles.clear(Trouble::BusLost);
            wait = RETRY.0;
            session.run(signals).await
        };
        let Err(error) = session.await else { continue };
        let message =
            format!("no D-Bus connection to systemd: {error}; without it nodevigil cannot find out why a service ends");
        troubles.set(Trouble::BusLost, message);
        events.send(BusEvent::Lost).await.ok();
        sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

async fn within<T>(time: Duration, work: impl Future<Output = zbus::Result<T>>) -> zbus::Result<T> {
    let no_answer = |_| zbus::Error::Failure(format!("no answer within {} s", time.as_secs()));
    timeout(time, work).await.map_err(no_answer)?
}

/// One connection's life.
struct Session {
    /// The names that the unit may have.
    candidates: Vec<String>,
    systemd: Systemd,
    /// The unique name that speaks for systemd.
    owner: Option<String>,
    unit: String,
    path: OwnedObjectPath,
    state: UnitState,
    /// [`CHANGED_AT`] of that state.
    changed_at: u64,
    /// The services that the unit requires, and whether it is bound to them.
    dependencies: Vec<(String, bool)>,
    events: mpsc::Sender<BusEvent>,
    /// Reads of jobs: systemd has one job of a unit at a time, so few are under way.
    job_reads: JoinSet<Option<BusEvent>>,
}

impl Session {
    async fn open(candidates: &[String], events: mpsc::Sender<BusEvent>) -> zbus::Result<(Self, MessageStream)> {
        let systemd = Systemd::connect(CALL_TIMEOUT).await?;
        let listener = Builder::system().max_queued(MAX_QUEUED).method_timeout(CALL_TIMEOUT).build().await?;
        systemd.subscribe().await?;
        let path = if let Some((_, path)) = systemd.best(candidates).await? {
            path
        } else {
            let first = candidates.first().ok_or_else(|| zbus::Error::Failure("no unit to search for".into()))?;
            systemd.load(first).await?
        };
        // Signals about jobs have this name, whichever alias the unit was asked for by.
        let unit = systemd.text(&path, UNIT, "Id").await?;
        let bus = DBusProxy::new(&listener).await?;
        for rule in match_rules(&unit, &path)? {
            bus.add_match_rule(rule).await?;
        }
        // Signals before this line are not received. They need not be, because the state is read after it.
        let signals = MessageStream::from(&listener);
        // On the other connection: here signals may come before the answer.
        let owner = DBusProxy::new(&systemd.0).await?.get_name_owner(SYSTEMD.try_into()?).await?;
        let mut session = Self {
            candidates: candidates.to_vec(),
            systemd,
            owner: Some(owner.to_string()),
            unit,
            path,
            state: UnitState::default(),
            changed_at: 0,
            dependencies: Vec::new(),
            events,
            job_reads: JoinSet::new(),
        };
        session.read().await?;
        Ok((session, signals))
    }

    /// Handles signals until another unit is to be watched.
    ///
    /// # Errors
    /// When the connection ends.
    async fn run(&mut self, mut signals: MessageStream) -> zbus::Result<()> {
        let (timer, mut next_question) = (Timer::new(), next_multiple(uptime(), ASK_EVERY));
        loop {
            tokio::select! {
                biased;
                // First, because a flood of signals would delay it.
                Some(Ok(Some(read))) = self.job_reads.join_next() => self.send(read).await?,
                message = signals.next() => {
                    let message = message.ok_or_else(|| zbus::Error::Failure("the bus closed the connection".into()))??;
                    if let Some(signal) = signal::read(&message, self.owner.as_deref()) {
                        self.handle(signal).await?;
                    }
                }
                () = timer.at(next_question) => {
                    next_question = next_multiple(uptime(), ASK_EVERY);
                    if !self.is_steady().await? {
                        self.read().await?;
                    }
                    if self.has_better_unit().await {
                        return Ok(());
                    }
                }
            }
            // The unit may have been installed since, under any of its names, or another one may be the one that is used.
            if self.state.load_state != "loaded" && self.has_better_unit().await {
                return Ok(());
            }
        }
    }

    /// Whether the unit runs and has not changed since it was read: all properties, and the services that it depends on, would cost a few
    /// milliseconds of CPU time.
    async fn is_steady(&self) -> zbus::Result<bool> {
        let changed_at = self.systemd.property(&self.path, UNIT, CHANGED_AT).await?;
        Ok(self.state.active_state == "active" && read::<u64>(&changed_at) == self.changed_at)
    }

    /// Whether another candidate is rather the one that is used, while this unit does not run.
    async fn has_better_unit(&self) -> bool {
        let UnitState { load_state, active_state, file_state, .. } = &self.state;
        let own = rank(load_state, active_state, file_state);
        own != Some(0)
            && self.candidates.len() > 1
            && self.systemd.best(&self.candidates).await.is_ok_and(|best| {
                best.is_some_and(|(rank, path)| path != self.path && own.is_none_or(|own| rank < own))
            })
    }

    async fn handle(&mut self, signal: Signal) -> zbus::Result<()> {
        match signal {
            Signal::Changed { path, properties } if path == self.path => {
                let before = self.state.clone();
                self.merge(&properties);
                // Each transition is signalled two to six times.
                if self.state == before { Ok(()) } else { self.send(BusEvent::Changed(self.state.clone())).await }
            }
            Signal::JobNew { id, path, unit } if unit == self.unit => {
                let (systemd, names) = (self.systemd.clone(), self.dependencies.clone());
                self.job_reads.spawn(async move { systemd.read_job(id, &path, &names).await });
                self.send(BusEvent::Job { id, kind: JobKind::Unread, dependencies: Vec::new() }).await
            }
            Signal::JobRemoved { id, unit, result } if unit == self.unit => {
                let is_given_up = result == "dependency";
                self.send(BusEvent::JobRemoved { id, result }).await?;
                // What it lacks may have changed a moment later.
                if is_given_up { self.read().await } else { Ok(()) }
            }
            // systemd has reloaded its unit files: every property may differ, unannounced.
            Signal::Reloaded => self.read().await,
            Signal::Owner(owner) => {
                let is_back = owner.is_some();
                self.owner = owner;
                if !is_back {
                    return Ok(());
                }
                self.systemd.subscribe().await?;
                self.read().await
            }
            _ => Ok(()),
        }
    }

    /// Reads the unit's whole state.
    async fn read(&mut self) -> zbus::Result<()> {
        self.send(BusEvent::Reading).await?;
        let properties = self.systemd.service(&self.path).await?;
        self.merge(&properties);
        self.dependencies = dependencies(&properties);
        let is_inactive = self.state.active_state == "inactive";
        let mut is_declined = is_inactive && self.systemd.is_declined(&properties).await;
        // docker.service is bound to containerd.service: systemd stops both if that fails, and by a job also a kubelet that requires docker.
        for (required, _) in self.dependencies.clone() {
            let Ok(path) = self.systemd.load(&required).await else { continue };
            let Ok(of_required) = self.systemd.service(&path).await else { continue };
            self.dependencies.extend(dependencies(&of_required).into_iter().filter(|(_, is_bound)| *is_bound));
            is_declined |= is_inactive && self.systemd.is_declined(&of_required).await;
        }
        self.dependencies.truncate(MAX_DEPENDENCIES);
        let job = properties.get("Job").and_then(job_id);
        let dependencies = self.systemd.dependencies(&self.dependencies).await;
        let (unit, state) = (self.unit.clone(), self.state.clone());
        let id = job.as_ref().map(|(id, _)| *id);
        self.send(BusEvent::Read { unit, state, job: id, dependencies }).await?;
        if is_declined {
            self.send(BusEvent::Declined).await?;
        }
        if let Some((id, path)) = job
            && let Some(read) = self.systemd.read_job(id, &path, &self.dependencies).await
        {
            self.send(read).await?;
        }
        Ok(())
    }

    fn merge(&mut self, properties: &Properties) {
        merge(&mut self.state, properties);
        self.changed_at = properties.get(CHANGED_AT).map_or(self.changed_at, read);
    }

    async fn send(&self, event: BusEvent) -> zbus::Result<()> {
        let sent = self.events.send(event).await;
        sent.map_err(|_| zbus::Error::Failure("the unit is no longer monitored".into()))
    }
}

fn match_rules<'a>(unit: &'a str, path: &'a OwnedObjectPath) -> zbus::Result<[MatchRule<'a>; 5]> {
    let from = |sender: &'static str| MatchRule::builder().msg_type(Type::Signal).sender(sender);
    let manager = |member: &'static str| from(SYSTEMD).path(MANAGER_PATH).interface(MANAGER).member(member);
    Ok([
        from(BUS).path(BUS_PATH).interface(BUS).member("NameOwnerChanged").arg(0, SYSTEMD).build()?,
        from(SYSTEMD).path(path.clone()).interface(PROPERTIES).member("PropertiesChanged").build()?,
        manager("JobNew").arg(2, unit).build()?,
        manager("JobRemoved").arg(2, unit).build()?,
        manager("Reloading").build()?,
    ])
}

/// Calls methods of systemd's.
#[derive(Debug, Clone)]
struct Systemd(Connection);

impl Systemd {
    async fn connect(call_timeout: Duration) -> zbus::Result<Self> {
        Ok(Self(Builder::system().method_timeout(call_timeout).build().await?))
    }

    /// The bus lets only root own systemd's name, and only the owner answer what is sent to it.
    async fn call<B>(&self, path: &str, interface: &str, method: &str, body: &B) -> zbus::Result<zbus::Message>
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        self.0.call_method(Some(SYSTEMD), path, Some(interface), method, body).await
    }

    /// Has systemd send signals. After `systemctl daemon-reexec` it may still know that we asked.
    async fn subscribe(&self) -> zbus::Result<()> {
        match self.call(MANAGER_PATH, MANAGER, "Subscribe", &()).await {
            Err(zbus::Error::MethodError(name, ..)) if name.as_str() == ALREADY_SUBSCRIBED => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn properties(&self, path: &str, interface: &str) -> zbus::Result<Properties> {
        self.call(path, PROPERTIES, "GetAll", &interface).await?.body().deserialize()
    }

    /// All properties of a service.
    async fn service(&self, path: &str) -> zbus::Result<Properties> {
        let mut properties = self.properties(path, UNIT).await?;
        properties.extend(self.properties(path, SERVICE).await?);
        Ok(properties)
    }

    async fn property(&self, path: &str, interface: &str, name: &str) -> zbus::Result<OwnedVariant> {
        self.call(path, PROPERTIES, "Get", &(interface, name)).await?.body().deserialize()
    }

    async fn text(&self, path: &str, interface: &str, name: &str) -> zbus::Result<String> {
        Ok(read(&self.property(path, interface, name).await?))
    }

    /// The best of `units`, with its [`rank`].
    async fn best(&self, units: &[String]) -> zbus::Result<Option<(u8, OwnedObjectPath)>> {
        let mut found = Vec::new();
        for unit in units {
            let path = self.load(unit).await?;
            let load_state = self.text(&path, UNIT, "LoadState").await?;
            if load_state == "loaded" {
                let active_state = self.text(&path, UNIT, "ActiveState").await?;
                let file_state = self.text(&path, UNIT, "UnitFileState").await?;
                found.extend(rank(&load_state, &active_state, &file_state).map(|rank| (rank, path)));
            }
        }
        Ok(found.into_iter().min_by_key(|(rank, _)| *rank))
    }

    async fn load(&self, unit: &str) -> zbus::Result<OwnedObjectPath> {
        self.call(MANAGER_PATH, MANAGER, "LoadUnit", &unit).await?.body().deserialize()
    }

    /// A job's kind; of a stop job, also the services that may have brought it. None if it is over already.
    async fn read_job(&self, id: u32, path: &str, dependencies: &[(String, bool)]) -> Option<BusEvent> {
        let kind = self.job_kind(path).await.ok()?;
        let dependencies = if kind == JobKind::Stop { self.dependencies(dependencies).await } else { Vec::new() };
        Some(BusEvent::Job { id, kind, dependencies })
    }

    async fn job_kind(&self, path: &str) -> zbus::Result<JobKind> {
        Ok(match self.text(path, JOB, "JobType").await?.as_str() {
            "stop" => JobKind::Stop,
            "restart" | "try-restart" | "reload-or-restart" | "reload-or-try-restart" => JobKind::Restart,
            "start" => JobKind::Start,
            _ => JobKind::Other,
        })
    }
}

/// Whether the bus answers, and systemd does not or has left the bus.
pub async fn is_silent() -> bool {
    let bus = within(OPEN_TIMEOUT, async {
        let systemd = Systemd::connect(CALL_TIMEOUT).await?;
        let has_owner = DBusProxy::new(&systemd.0).await?.name_has_owner(SYSTEMD.try_into()?).await?;
        Ok((systemd, has_owner))
    });
    match bus.await {
        Ok((systemd, true)) => systemd.text(MANAGER_PATH, MANAGER, "Version").await.is_err(),
        Ok((_, false)) => true,
        Err(_) => false,
    }
}

/// Whether the socket is closed that systemd has from the host's start on, while that of the bus is open in the same table. One that hangs
/// still has it.
pub fn has_closed_socket() -> bool {
    let sockets = procfs::net::unix().unwrap_or_default();
    let is_open =
        |name: &str| sockets.iter().any(|socket| socket.path.as_ref().is_some_and(|path| path.ends_with(name)));
    is_open("dbus/system_bus_socket") && !is_open("systemd/private")
}

/// Whether systemd runs the agent as nodevigil.service.
///
/// # Errors
/// When the bus or systemd does not answer within 15 seconds. A bus that hangs does not even end the handshake.
pub async fn is_service_active() -> zbus::Result<bool> {
    within(OPEN_TIMEOUT, async {
        let systemd = Systemd::connect(CALL_TIMEOUT).await?;
        let unit = systemd.load("nodevigil.service").await?;
        Ok(["active", "activating"].contains(&&*systemd.text(&unit, UNIT, "ActiveState").await?))
    })
    .await
}

/// Why the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Shutdown,
    /// A stop job of its unit.
    OfUnit,
    /// It is restarted, or was sent a signal.
    Other,
}

/// Why this process ends. Each call is answered within 300 ms, or fails. In a pod, which belongs to no unit of the host, only whether
/// the host shuts down is asked.
///
/// # Errors
/// When the bus or systemd does not answer, or we belong to no unit.
pub async fn why_stopped(is_pod: bool) -> zbus::Result<Stop> {
    let systemd = Systemd::connect(Duration::from_millis(300)).await?;
    if systemd.text(MANAGER_PATH, MANAGER, "SystemState").await? == "stopping" {
        return Ok(Stop::Shutdown);
    }
    if is_pod {
        return Ok(Stop::Other);
    }
    // 0 means the caller, as the bus knows it: in a PID namespace our own number is not systemd's.
    let unit = systemd.call(MANAGER_PATH, MANAGER, "GetUnitByPID", &0_u32).await?;
    let unit: OwnedObjectPath = unit.body().deserialize()?;
    let is_stopped = match job_id(&systemd.property(&unit, UNIT, "Job").await?) {
        Some((_, path)) => systemd.job_kind(&path).await? == JobKind::Stop,
        None => false,
    };
    Ok(if is_stopped { Stop::OfUnit } else { Stop::Other })
}
