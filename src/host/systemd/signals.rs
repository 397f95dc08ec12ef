//! What a message on the bus is, once its sender, path, interface and member are all as they must be. Pure.

use std::collections::HashMap;

use zbus::{
    Message, ObjectPath, OwnedObjectPath, OwnedVariant,
    message::Type,
    names::{InterfaceName, MemberName, UniqueName},
};

use super::{JOB, MANAGER, MANAGER_PATH, PROPERTIES, SERVICE, SYSTEMD, UNIT, dropped::Cause};

/// The bus itself, by a name that the bus gives nobody else.
pub(super) const BUS: &str = "org.freedesktop.DBus";
pub(super) const BUS_PATH: &str = "/org/freedesktop/DBus";

/// Where the jobs are, each by its number.
pub(super) const JOBS_PATH: &str = "/org/freedesktop/systemd1/job";

/// What was said.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// Properties of the unit at that path have changed.
    Changed(OwnedObjectPath, HashMap<String, OwnedVariant>),
    /// A job for the unit of that name.
    JobNew(u32, OwnedObjectPath, String),
    /// The state of the job of that number was said.
    JobChanged(u32),
    /// Its end.
    JobRemoved(u32, String),
    /// systemd has read its units anew, or is about to.
    Reloading,
    /// Another connection speaks for systemd from now on, or none.
    Owner(Option<String>),
    /// An answer of systemd's; whether it is one to a question of ours is for others to say.
    Answer,
    /// The bus's own affairs.
    Nothing,
}

/// Reads a message. `owner`: who speaks for systemd, by the bus's own word.
pub(super) fn read(message: &Message, owner: Option<&str>) -> Result<Said, Cause> {
    let header = message.header();
    let sender = header.sender().map(UniqueName::as_str);
    if sender == Some(BUS) {
        return Ok(of_the_bus(message));
    }
    if sender.is_none() || sender != owner {
        return Err(Cause::Sender);
    }
    match message.message_type() {
        Type::Signal => {}
        Type::MethodReturn | Type::Error => return Ok(Said::Answer),
        Type::MethodCall => return Err(Cause::Kind),
    }
    let path = header.path().map(ObjectPath::as_str).unwrap_or_default();
    let interface = header.interface().map(InterfaceName::as_str);
    let member = header.member().map(MemberName::as_str);
    let body = message.body();
    match (interface.unwrap_or_default(), member.unwrap_or_default()) {
        (PROPERTIES, "PropertiesChanged") => {
            let (of, changed, _): (String, HashMap<String, OwnedVariant>, Vec<String>) =
                body.deserialize().map_err(|_| Cause::Body)?;
            if of == JOB {
                return job_at(path).map(Said::JobChanged).ok_or(Cause::Kind);
            }
            if of != UNIT && of != SERVICE {
                return Err(Cause::Kind);
            }
            let path = header.path().ok_or(Cause::Kind)?.to_owned();
            Ok(Said::Changed(path.into(), changed))
        }
        (MANAGER, "JobNew") if path == MANAGER_PATH => {
            let (id, path, unit) = body.deserialize().map_err(|_| Cause::Body)?;
            Ok(Said::JobNew(id, path, unit))
        }
        (MANAGER, "JobRemoved") if path == MANAGER_PATH => {
            let (id, _, unit, _): (u32, OwnedObjectPath, String, String) =
                body.deserialize().map_err(|_| Cause::Body)?;
            Ok(Said::JobRemoved(id, unit))
        }
        (MANAGER, "Reloading") if path == MANAGER_PATH => Ok(Said::Reloading),
        _ => Err(Cause::Kind),
    }
}

fn job_at(path: &str) -> Option<u32> {
    let number = path.strip_prefix(JOBS_PATH)?.strip_prefix('/')?;
    number.parse().ok()
}

fn of_the_bus(message: &Message) -> Said {
    let header = message.header();
    let is_news = message.message_type() == Type::Signal
        && header.path().is_some_and(|path| path == BUS_PATH)
        && header.interface().is_some_and(|name| name == BUS)
        && header
            .member()
            .is_some_and(|name| name == "NameOwnerChanged");
    if !is_news {
        return Said::Nothing;
    }
    match message.body().deserialize::<(String, String, String)>() {
        Ok((name, _, owner)) if name == SYSTEMD => {
            Said::Owner(Some(owner).filter(|owner| !owner.is_empty()))
        }
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use zbus::{DynamicType, Variant};

    use super::*;

    const OWNER: &str = ":1.1";
    const UNIT_PATH: &str = "/org/freedesktop/systemd1/unit/kubelet_2eservice";

    fn signal<B>(from: &str, at: (&str, &str, &str), body: &B) -> Message
    where
        B: serde::Serialize + DynamicType,
    {
        let (path, interface, member) = at;
        let builder = Message::signal(path, interface, member).sender(from);
        builder.build(body).unwrap()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn sender_path_interface_member_and_body_are_all_compared() {
        let properties = || {
            let frozen = Variant::from("frozen").try_to_owned().unwrap();
            HashMap::from([("FreezerState".to_owned(), frozen)])
        };
        let changed = (UNIT, properties(), Vec::<String>::new());
        let job_path = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap();
        let job = (7_u32, job_path.clone(), "kubelet.service");
        let gone = (7_u32, job_path.clone(), "kubelet.service", "done");
        let at_unit = (UNIT_PATH, PROPERTIES, "PropertiesChanged");
        let at_job = (MANAGER_PATH, MANAGER, "JobNew");
        let at_removed = (MANAGER_PATH, MANAGER, "JobRemoved");
        let at_owner = (BUS_PATH, BUS, "NameOwnerChanged");
        let new_owner = (SYSTEMD, OWNER, ":1.66");
        let unit_path = OwnedObjectPath::try_from(UNIT_PATH).unwrap();
        let unit = "kubelet.service".to_owned();
        let rows = [
            (
                signal(OWNER, at_unit, &changed),
                Ok(Said::Changed(unit_path, properties())),
            ),
            (signal(":1.66", at_unit, &changed), Err(Cause::Sender)),
            (signal(OWNER, at_unit, &7_u32), Err(Cause::Body)),
            (signal(OWNER, at_unit, &()), Err(Cause::Body)),
            (
                signal(OWNER, at_unit, &(JOB, properties(), Vec::<String>::new())),
                Err(Cause::Kind),
            ),
            (
                signal(
                    OWNER,
                    (job_path.as_str(), PROPERTIES, "PropertiesChanged"),
                    &(JOB, properties(), Vec::<String>::new()),
                ),
                Ok(Said::JobChanged(7)),
            ),
            (
                signal(OWNER, (UNIT_PATH, UNIT, "PropertiesChanged"), &changed),
                Err(Cause::Kind),
            ),
            (
                signal(OWNER, at_job, &job),
                Ok(Said::JobNew(7, job_path, unit.clone())),
            ),
            (signal(":1.66", at_job, &job), Err(Cause::Sender)),
            (
                signal(OWNER, (UNIT_PATH, MANAGER, "JobNew"), &job),
                Err(Cause::Kind),
            ),
            (
                signal(OWNER, (MANAGER_PATH, UNIT, "JobNew"), &job),
                Err(Cause::Kind),
            ),
            (signal(OWNER, at_job, &"kubelet.service"), Err(Cause::Body)),
            (
                signal(OWNER, at_removed, &gone),
                Ok(Said::JobRemoved(7, unit)),
            ),
            (signal(OWNER, at_removed, &job), Err(Cause::Body)),
            (
                signal(OWNER, (MANAGER_PATH, MANAGER, "Reloading"), &true),
                Ok(Said::Reloading),
            ),
            (
                signal(OWNER, (MANAGER_PATH, MANAGER, "Unheard"), &()),
                Err(Cause::Kind),
            ),
            (
                signal(BUS, at_owner, &new_owner),
                Ok(Said::Owner(Some(":1.66".to_owned()))),
            ),
            (
                signal(BUS, at_owner, &(SYSTEMD, OWNER, "")),
                Ok(Said::Owner(None)),
            ),
            (
                signal(BUS, at_owner, &("org.other", "", ":1.66")),
                Ok(Said::Nothing),
            ),
            (signal(BUS, at_owner, &7_u32), Ok(Said::Nothing)),
            (signal(BUS, at_job, &job), Ok(Said::Nothing)),
            (signal(":1.66", at_owner, &new_owner), Err(Cause::Sender)),
            (signal(OWNER, at_owner, &new_owner), Err(Cause::Kind)),
        ];
        for (number, (message, wanted)) in rows.into_iter().enumerate() {
            assert_eq!(read(&message, Some(OWNER)), wanted, "row {number}");
        }
    }

    #[test]
    fn nobody_speaks_for_a_systemd_that_is_away() {
        let message = signal(OWNER, (MANAGER_PATH, MANAGER, "Reloading"), &true);
        assert_eq!(read(&message, None), Err(Cause::Sender));
        let unsigned = Message::signal(MANAGER_PATH, MANAGER, "Reloading");
        let unsigned = unsigned.build(&true).unwrap();
        assert_eq!(read(&unsigned, None), Err(Cause::Sender));
    }
}
