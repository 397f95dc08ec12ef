//! A program that lies to one connection of the system bus: signals of systemd's shape, addressed to that connection alone. This test
//! binary itself, under another name.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use zbus::DynamicType;
use zbus::message::Builder;
use zbus::{Connection, Message, ObjectPath, Variant};

/// Its name on the node.
pub(crate) const PROGRAM: &str = "bus-flood";
/// The variable that says what to do: to which process, what, for how many seconds.
pub(crate) const ORDER: &str = "BUS_FLOOD";

const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const MANAGER: (&str, &str) = (
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
);
const JOB: &str = "/org/freedesktop/systemd1/job/4242";
const A_SECOND: usize = 10_000;
const LARGE: usize = 16 * 1024 * 1024;

/// The program, for [`super::node_builder::NodeBuilder::program`].
pub(crate) fn program() -> Result<PathBuf> {
    let folder = PathBuf::from(format!("/run/{PROGRAM}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let at = folder.join(PROGRAM);
    if !at.exists() {
        symlink(std::env::current_exe()?, &at).ok();
    }
    Ok(at)
}

/// Does as it is told and never returns, if this program was started to lie. Call it first in `main`.
pub(crate) fn serve_if_asked() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(serve(&order)));
    match done {
        Ok((sent, took)) => tell(&format!("sent {sent} {}", took.as_millis())),
        Err(error) => tell(&format!("{error:#}")),
    }
    std::process::exit(0)
}

fn tell(line: &str) {
    writeln!(std::io::stdout(), "{line}").ok();
}

async fn serve(order: &str) -> Result<(usize, Duration)> {
    let mut words = order.split(' ');
    let mut next = || words.next().context("a word of the order");
    let (pid, what, secs) = (next()?.parse()?, next()?.to_owned(), next()?.parse()?);
    let connection = Connection::system().await?;
    let target = connection_of(&connection, pid).await?;
    let lies = match what.as_str() {
        "large" => vec![changed(&target, UNIT, "Names", vec![0_u8; LARGE].into())?],
        _ => lies(&connection, &target)?,
    };
    drop(connection);
    // Written as they are, many at a time: it is the agent that is to be kept busy, not this program.
    let mut bus = raw_connection()?;
    let (from, limit) = (Instant::now(), Duration::from_secs(secs));
    let mut sent = 0;
    while from.elapsed() < limit {
        let due = match what.as_str() {
            "large" => sent + 1,
            _ => usize::try_from(from.elapsed().as_millis())? * A_SECOND / 1000,
        };
        let mut bytes = Vec::new();
        for number in sent..due {
            bytes.extend_from_slice(lies[number % lies.len()].data());
        }
        bus.write_all(&bytes)?;
        sent = due;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((sent, from.elapsed()))
}

/// A connection that has said hello.
fn raw_connection() -> Result<UnixStream> {
    let mut bus = UnixStream::connect("/run/dbus/system_bus_socket")?;
    let uid = nix::unistd::getuid().to_string();
    let mut hexadecimal = String::new();
    for digit in uid.bytes() {
        write!(hexadecimal, "{digit:02x}")?;
    }
    bus.write_all(format!("\0AUTH EXTERNAL {hexadecimal}\r\n").as_bytes())?;
    let mut answer = [0; 512];
    let length = bus.read(&mut answer)?;
    anyhow::ensure!(answer[..length].starts_with(b"OK"), "no OK of the bus");
    let hello = Message::method_call("/org/freedesktop/DBus", "Hello")
        .destination("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .build(&())?;
    bus.write_all(b"BEGIN\r\n")?;
    bus.write_all(hello.data())?;
    Ok(bus)
}

/// The unique name under which the process of that pid is on the bus.
async fn connection_of(connection: &Connection, pid: u32) -> Result<String> {
    let bus = zbus::fdo::DBusProxy::new(connection).await?;
    for name in bus.list_names().await? {
        let is_unique = name.as_str().starts_with(':');
        if is_unique
            && bus
                .get_connection_unix_process_id(name.clone().into())
                .await
                .ok()
                == Some(pid)
        {
            return Ok(name.to_string());
        }
    }
    anyhow::bail!("process {pid} is not on the bus")
}

fn unit_path(unit: &str) -> String {
    format!(
        "/org/freedesktop/systemd1/unit/{}",
        unit.replace('.', "_2e")
    )
}

fn signal<B>(target: &str, at: (&str, &str), member: &str, body: &B) -> Result<Message>
where
    B: serde::Serialize + DynamicType,
{
    let builder: Builder<'_> = Message::signal(at.0, at.1, member);
    Ok(builder.destination(target).build(body)?)
}

fn changed(target: &str, interface: &str, name: &str, value: Variant<'_>) -> Result<Message> {
    let at = (
        unit_path("kubelet.service"),
        "org.freedesktop.DBus.Properties",
    );
    let body = (
        interface,
        std::collections::HashMap::from([(name, value)]),
        Vec::<&str>::new(),
    );
    signal(target, (&at.0, at.1), "PropertiesChanged", &body)
}

/// Each kind of lie, and each kind of nonsense.
fn lies(connection: &Connection, target: &str) -> Result<Vec<Message>> {
    let own = connection
        .unique_name()
        .context("a unique name")?
        .to_string();
    let job = ObjectPath::try_from(JOB)?;
    let properties = (
        unit_path("kubelet.service"),
        "org.freedesktop.DBus.Properties",
    );
    let at_unit = (properties.0.as_str(), properties.1);
    let bus = ("/org/freedesktop/DBus", "org.freedesktop.DBus");
    let mut lies = vec![
        changed(target, UNIT, "FreezerState", "frozen".into())?,
        changed(target, UNIT, "ActiveState", "failed".into())?,
        changed(target, UNIT, "SubState", "auto-restart".into())?,
        changed(target, UNIT, "LoadState", "not-found".into())?,
        changed(target, SERVICE, "Result", "oom-kill".into())?,
        changed(target, SERVICE, "ControlGroup", "/user.slice".into())?,
        changed(target, SERVICE, "MainPID", 1_u32.into())?,
        changed(target, SERVICE, "ExecMainCode", 2_i32.into())?,
        signal(
            target,
            bus,
            "NameOwnerChanged",
            &("org.freedesktop.systemd1", ":1.0", own.as_str()),
        )?,
        signal(target, MANAGER, "Reloading", &false)?,
        signal(target, at_unit, "PropertiesChanged", &7_u32)?,
        signal(target, at_unit, "PropertiesChanged", &())?,
        signal(target, MANAGER, "JobNew", &"kubelet.service")?,
        signal(target, MANAGER, "JobRemoved", &())?,
    ];
    for unit in ["kubelet.service", "containerd.service", "shutdown.target"] {
        for id in 0..20_u32 {
            lies.push(signal(
                target,
                MANAGER,
                "JobNew",
                &(900_000 + id, &job, unit),
            )?);
            lies.push(signal(
                target,
                MANAGER,
                "JobRemoved",
                &(900_000 + id, &job, unit, "done"),
            )?);
        }
    }
    Ok(lies)
}
