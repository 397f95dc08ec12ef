//! Which of the bus's broadcasts are ours to hear. What is addressed to us comes whatever they say: [`super::bus`].

use zbus::{
    Connection, MatchRule, OwnedObjectPath, fdo::DBusProxy, match_rule::Builder, message::Type,
};

use super::{
    MANAGER, MANAGER_PATH, PROPERTIES, SHUTDOWN, SYSTEMD,
    signals::{BUS, BUS_PATH, JOBS_PATH},
};

fn from_systemd() -> Builder<'static> {
    MatchRule::builder().msg_type(Type::Signal).sender(SYSTEMD)
}

/// Who speaks for systemd.
pub(super) async fn hear_of_owners(connection: &Connection) -> zbus::Result<()> {
    let rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(BUS)
        .path(BUS_PATH)
        .interface(BUS)
        .member("NameOwnerChanged")
        .arg(0, SYSTEMD)
        .build()?;
    add_rules(connection, [rule]).await
}

/// What is told of systemd itself.
pub(super) async fn subscribe(connection: &Connection) -> zbus::Result<()> {
    let manager = || from_systemd().path(MANAGER_PATH).interface(MANAGER);
    let rules = [
        manager().member("JobNew").arg(2, SHUTDOWN).build()?,
        manager().member("JobRemoved").arg(2, SHUTDOWN).build()?,
        manager().member("Reloading").build()?,
    ];
    add_rules(connection, rules).await
}

/// What is told of every job, as there is no telling the paths of those to come.
pub(super) async fn hear_of_jobs(connection: &Connection) -> zbus::Result<()> {
    let rule = from_systemd()
        .path_namespace(JOBS_PATH)
        .interface(PROPERTIES)
        .member("PropertiesChanged")
        .build()?;
    add_rules(connection, [rule]).await
}

/// What is told of a unit.
pub(super) async fn follow(
    connection: &Connection,
    unit: &str,
    unit_path: &OwnedObjectPath,
) -> zbus::Result<()> {
    let manager = || from_systemd().path(MANAGER_PATH).interface(MANAGER);
    let rules = [
        from_systemd()
            .path(unit_path.clone())
            .interface(PROPERTIES)
            .member("PropertiesChanged")
            .build()?,
        manager().member("JobNew").arg(2, unit).build()?,
        manager().member("JobRemoved").arg(2, unit).build()?,
    ];
    add_rules(connection, rules).await
}

async fn add_rules<const N: usize>(
    connection: &Connection,
    rules: [MatchRule<'_>; N],
) -> zbus::Result<()> {
    let bus = DBusProxy::new(connection).await?;
    for rule in rules {
        bus.add_match_rule(rule).await?;
    }
    Ok(())
}
