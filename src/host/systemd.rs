//! systemd over D-Bus: the unit's state and its jobs, told as they change. Reading only.
//!
//! One connection, match rules for this unit and for the host's shutdown alone. All signals come through one stream, so that they keep the
//! order in which systemd sent them: a job is known before the process that it ends is gone.

mod properties;

use std::{collections::HashMap, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tracing::debug;
use zbus::{
    Connection, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant,
    export::futures_core::Stream,
    fdo::{DBusProxy, PropertiesProxy},
    message::Type,
    names::{InterfaceName, MemberName},
    zvariant::DynamicType,
};

use properties::{merge, text};

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

/// What the bus has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    /// The unit of this name is watched: of several that could run the kubelet the first that is there.
    Watching(String),
    /// Connected, and the unit's state has been read.
    Connected,
    /// Not connected, or no longer; tried again by itself.
    Lost(String),
    /// Something about the unit.
    Sign(Box<Sign>),
    /// Whether the host is going down: at the start if so, and when that changes.
    ShuttingDown(bool),
    /// What systemd has loaded for the unit: at the start, and after each time that it read its units anew.
    Loaded(Box<Loaded>),
}

fn sign(sign: Sign) -> BusEvent {
    BusEvent::Sign(Box::new(sign))
}

/// How a connection ended.
enum End {
    /// It never knew the unit.
    NotConnected(String),
    /// The bus went away.
    Lost(String),
    /// Another unit is there now, and is to be watched.
    OtherUnit,
}

/// Watches the first of these units that is there until nobody listens any more.
pub async fn watch(units: Vec<String>, events: mpsc::Sender<BusEvent>) {
    let mut wait = RETRY.0;
    loop {
        let end = session(&units, &events).await;
        if !matches!(end, End::NotConnected(_)) {
            wait = RETRY.0;
        }
        let (End::NotConnected(error) | End::Lost(error)) = end else {
            continue;
        };
        if events.send(BusEvent::Lost(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// One connection's life.
async fn session(units: &[String], events: &mpsc::Sender<BusEvent>) -> End {
    // A bus daemon that hangs accepts the connection and then says nothing.
    let open = tokio::time::timeout(OPEN_TIMEOUT, Session::open(units, events.clone()));
    let mut session = match open.await {
        Ok(Ok(session)) => session,
        Ok(Err(e)) => return End::NotConnected(e.to_string()),
        Err(_) => {
            let secs = OPEN_TIMEOUT.as_secs();
            return End::NotConnected(format!("no answer within {secs} s"));
        }
    };
    match session.run(units).await {
        Ok(()) if session.is_elsewhere => End::OtherUnit,
        Ok(()) => End::Lost("the bus closed the connection".to_owned()),
        Err(e) => End::Lost(e.to_string()),
    }
}

struct Session {
    connection: Connection,
    messages: MessageStream,
    unit_path: OwnedObjectPath,
    unit: Unit,
    /// Whether it is another unit that is there now.
    is_elsewhere: bool,
    events: mpsc::Sender<BusEvent>,
    questions: JoinSet<()>,
}

impl Session {
    async fn open(units: &[String], events: mpsc::Sender<BusEvent>) -> zbus::Result<Self> {
        let connection = zbus::connection::Builder::system()
            .method_timeout(CALL_TIMEOUT)
            .build()
            .await?;
        let messages = MessageStream::from(&connection);
        let (unit, unit_path) = choose(&connection, units).await?;
        subscribe(&connection, &unit, &unit_path).await?;
        call(&connection, "Subscribe", &()).await?;
        let mut session = Self {
            connection,
            messages,
            unit_path,
            unit: Unit::default(),
            is_elsewhere: false,
            events,
            questions: JoinSet::new(),
        };
        session.say(BusEvent::Watching(unit)).await;
        session.read_unit().await?;
        session.ask_system_state();
        session.say(BusEvent::Connected).await;
        Ok(session)
    }

    async fn run(&mut self, units: &[String]) -> zbus::Result<()> {
        while let Some(message) = next(&mut self.messages).await {
            let message = message?;
            while self.questions.try_join_next().is_some() {}
            if message.message_type() != Type::Signal {
                continue;
            }
            self.signal(&message).await?;
            // Its units have been read anew, and ours is still not there: is another one?
            let member = message.header();
            let member = member.member().map(MemberName::as_str);
            if member == Some("Reloading") && units.len() > 1 && self.unit.load_state != "loaded" {
                let (_, path) = choose(&self.connection, units).await?;
                self.is_elsewhere = path != self.unit_path;
                if self.is_elsewhere {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn signal(&mut self, message: &Message) -> zbus::Result<()> {
        let header = message.header();
        let member = header.member().map(MemberName::as_str).unwrap_or_default();
        match member {
            "PropertiesChanged" if header.path().is_some_and(|p| *p == *self.unit_path) => {
                let body = message.body();
                let (_, changed, _): (String, HashMap<String, OwnedVariant>, Vec<String>) =
                    body.deserialize()?;
                self.merge(&changed).await;
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
                self.say(sign(Sign::Job(id, JobKind::Unasked))).await;
                self.ask_job_type(id, path);
            }
            "JobRemoved" => {
                let (id, _, unit, _): (u32, OwnedObjectPath, String, String) =
                    message.body().deserialize()?;
                if unit == SHUTDOWN {
                    self.ask_system_state();
                    return Ok(());
                }
                self.say(sign(Sign::JobDone(id))).await;
            }
            // After a reload or a re-execution every property may differ, unannounced.
            "Reloading" | "NameOwnerChanged" => {
                call(&self.connection, "Subscribe", &()).await.ok();
                self.read_unit().await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks without waiting: the signals that come meanwhile matter more.
    fn ask_job_type(&mut self, id: u32, path: OwnedObjectPath) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        self.questions.spawn(async move {
            match job_type(&connection, path).await {
                Ok(kind) => {
                    events.send(sign(Sign::Job(id, kind))).await.ok();
                }
                Err(e) => debug!(job = id, error = %e, "a job's type could not be read"),
            }
        });
    }

    async fn read_unit(&mut self) -> zbus::Result<()> {
        self.say(sign(Sign::JobsUntold)).await;
        for interface in [UNIT, SERVICE] {
            let properties = PropertiesProxy::builder(&self.connection)
                .destination(SYSTEMD)
                .path(self.unit_path.clone())
                .build()
                .await?
                .get_all(InterfaceName::from_static_str_unchecked(interface))
                .await?;
            merge(&mut self.unit, &properties);
            // A job that was queued before we listened: `(uo)`, number 0 if there is none.
            if let Some((id, path)) = properties.get("Job").and_then(job)
                && id != 0
            {
                self.say(sign(Sign::Job(id, JobKind::Unasked))).await;
                self.ask_job_type(id, path);
            }
        }
        self.say(sign(Sign::Unit(self.unit.clone()))).await;
        // Not waited for: an end of the process that comes meanwhile matters more.
        let (connection, path) = (self.connection.clone(), self.unit_path.clone());
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

    /// systemd announces no change of this property; the jobs of [`SHUTDOWN`] do.
    fn ask_system_state(&mut self) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        self.questions.spawn(async move {
            match get(&connection, MANAGER_PATH, MANAGER, "SystemState").await {
                Ok(state) => {
                    let stopping = text(&state) == "stopping";
                    events.send(BusEvent::ShuttingDown(stopping)).await.ok();
                }
                Err(e) => debug!(error = %e, "the system's state could not be read"),
            }
        });
    }

    async fn merge(&mut self, changed: &HashMap<String, OwnedVariant>) {
        let before = self.unit.clone();
        merge(&mut self.unit, changed);
        // Each transition comes two to six times over.
        if self.unit != before {
            self.say(sign(Sign::Unit(self.unit.clone()))).await;
        }
    }

    async fn say(&self, event: BusEvent) {
        // Nobody listening means that the agent is stopping.
        self.events.send(event).await.ok();
    }
}

/// The first of the units that is there, else the first.
async fn choose(
    connection: &Connection,
    units: &[String],
) -> zbus::Result<(String, OwnedObjectPath)> {
    let mut first = None;
    for unit in units {
        let path: OwnedObjectPath = call(connection, "LoadUnit", &(unit.as_str()))
            .await?
            .body()
            .deserialize()?;
        if units.len() == 1 {
            return Ok((unit.clone(), path));
        }
        let state = get(connection, path.as_str(), UNIT, "LoadState").await?;
        let is_there = text(&state) == "loaded";
        if is_there {
            return Ok((unit.clone(), path));
        }
        first.get_or_insert((unit.clone(), path));
    }
    first.ok_or_else(|| zbus::Error::Failure("no unit to watch".to_owned()))
}

async fn next(messages: &mut MessageStream) -> Option<zbus::Result<Message>> {
    std::future::poll_fn(|context| Stream::poll_next(std::pin::Pin::new(&mut *messages), context))
        .await
}

async fn call<B>(connection: &Connection, method: &'static str, body: &B) -> zbus::Result<Message>
where
    B: serde::Serialize + DynamicType,
{
    connection
        .call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, body)
        .await
}

async fn subscribe(
    connection: &Connection,
    unit: &str,
    unit_path: &OwnedObjectPath,
) -> zbus::Result<()> {
    let bus = DBusProxy::new(connection).await?;
    let from_systemd = || MatchRule::builder().msg_type(Type::Signal).sender(SYSTEMD);
    let manager = || from_systemd().path(MANAGER_PATH).interface(MANAGER);
    let rules = [
        from_systemd()
            .path(unit_path.clone())
            .interface(PROPERTIES)
            .member("PropertiesChanged")
            .build()?,
        manager().member("JobNew").arg(2, unit).build()?,
        manager().member("JobRemoved").arg(2, unit).build()?,
        manager().member("JobNew").arg(2, SHUTDOWN).build()?,
        manager().member("JobRemoved").arg(2, SHUTDOWN).build()?,
        manager().member("Reloading").build()?,
        MatchRule::builder()
            .msg_type(Type::Signal)
            .sender("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            .arg(0, SYSTEMD)
            .build()?,
    ];
    for rule in rules {
        bus.add_match_rule(rule).await?;
    }
    Ok(())
}

fn job(value: &OwnedVariant) -> Option<(u32, OwnedObjectPath)> {
    let value = value.try_clone().ok()?;
    <(u32, OwnedObjectPath)>::try_from(value).ok()
}

async fn get(
    connection: &Connection,
    path: &str,
    interface: &str,
    property: &str,
) -> zbus::Result<OwnedVariant> {
    let reply = connection
        .call_method(
            Some(SYSTEMD),
            path,
            Some(PROPERTIES),
            "Get",
            &(interface, property),
        )
        .await?;
    reply.body().deserialize()
}

async fn job_type(connection: &Connection, path: OwnedObjectPath) -> zbus::Result<JobKind> {
    let value = get(connection, path.as_str(), JOB, "JobType").await?;
    Ok(match text(&value).as_str() {
        "stop" => JobKind::Stop,
        "restart" | "try-restart" | "reload-or-restart" | "reload-or-try-restart" => {
            JobKind::Restart
        }
        "start" => JobKind::Start,
        _ => JobKind::Other,
    })
}
