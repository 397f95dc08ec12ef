//! Parses a message of the bus and checks its sender, path, interface, member and body. Pure.

use std::collections::HashMap;

use zbus::message::Type;
use zbus::names::UniqueName;
use zbus::{Message, OwnedObjectPath, OwnedVariant};

pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const SERVICE: &str = "org.freedesktop.systemd1.Service";
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The bus itself, by a sender name that no other connection can have.
pub(super) const BUS: &str = "org.freedesktop.DBus";
pub(super) const BUS_PATH: &str = "/org/freedesktop/DBus";

/// A signal that counts.
#[derive(Debug, PartialEq)]
pub(super) enum Signal {
    /// Properties of the unit at that path have changed.
    Changed {
        path: OwnedObjectPath,
        properties: HashMap<String, OwnedVariant>,
    },
    JobNew {
        id: u32,
        path: OwnedObjectPath,
        unit: String,
    },
    JobRemoved {
        id: u32,
        unit: String,
        result: String,
    },
    /// systemd has reloaded its unit files.
    Reloaded,
    /// Another connection owns systemd's name from now on, or none.
    Owner(Option<String>),
}

/// Parses a message; none if it does not count: its sender is neither systemd nor the bus, or nodevigil has not subscribed to it. `owner`
/// is the unique name that owns systemd's name on the bus.
pub(super) fn read(message: &Message, owner: Option<&str>) -> Option<Signal> {
    let header = message.header();
    let sender = header.sender().map(UniqueName::as_str);
    let is_of_bus = sender == Some(BUS);
    if message.message_type() != Type::Signal || !(is_of_bus || (sender.is_some() && sender == owner)) {
        return None;
    }
    read_signal(message, is_of_bus)
}

fn read_signal(signal: &Message, is_of_bus: bool) -> Option<Signal> {
    let (header, body) = (signal.header(), signal.body());
    let path = header.path()?;
    match (path.as_str(), header.interface()?.as_str(), header.member()?.as_str()) {
        (BUS_PATH, BUS, "NameOwnerChanged") if is_of_bus => {
            let (name, _, owner): (String, String, String) = body.deserialize().ok()?;
            (name == SYSTEMD).then(|| Signal::Owner(Some(owner).filter(|owner| !owner.is_empty())))
        }
        _ if is_of_bus => None,
        (_, PROPERTIES, "PropertiesChanged") => {
            let (of, properties, _): (String, HashMap<_, _>, Vec<String>) = body.deserialize().ok()?;
            let path = path.to_owned().into();
            (of == UNIT || of == SERVICE).then_some(Signal::Changed { path, properties })
        }
        (MANAGER_PATH, MANAGER, "JobNew") => {
            let (id, path, unit) = body.deserialize().ok()?;
            Some(Signal::JobNew { id, path, unit })
        }
        (MANAGER_PATH, MANAGER, "JobRemoved") => {
            let (id, _, unit, result): (u32, OwnedObjectPath, String, String) = body.deserialize().ok()?;
            Some(Signal::JobRemoved { id, unit, result })
        }
        // `true` when it begins, `false` when it is done.
        (MANAGER_PATH, MANAGER, "Reloading") => (!body.deserialize::<bool>().ok()?).then_some(Signal::Reloaded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use zbus::{DynamicType, Variant};

    use super::*;

    const OWNER: &str = ":1.1";
    const FOREIGN: &str = ":1.66";
    const UNIT_PATH: &str = "/org/freedesktop/systemd1/unit/kubelet_2eservice";

    fn signal<B: serde::Serialize + DynamicType>(sender: &str, at: (&str, &str, &str), body: &B) -> Message {
        let (path, interface, member) = at;
        Message::signal(path, interface, member).sender(sender).build(body).unwrap()
    }

    fn properties() -> HashMap<String, OwnedVariant> {
        HashMap::from([("ActiveState".to_owned(), Variant::from("failed").try_to_owned().unwrap())])
    }

    #[test]
    fn sender_path_interface_member_and_body_are_all_compared() {
        let changed = (UNIT, properties(), Vec::<String>::new());
        let job_path = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap();
        let job = (7_u32, job_path.clone(), "kubelet.service");
        let removed = (7_u32, job_path.clone(), "kubelet.service", "done");
        let at_unit = (UNIT_PATH, PROPERTIES, "PropertiesChanged");
        let at_new = (MANAGER_PATH, MANAGER, "JobNew");
        let at_owner = (BUS_PATH, BUS, "NameOwnerChanged");
        let new_owner = (SYSTEMD, OWNER, FOREIGN);
        let unit = || "kubelet.service".to_owned();
        let rows = [
            (
                signal(OWNER, at_unit, &changed),
                Some(Signal::Changed { path: OwnedObjectPath::try_from(UNIT_PATH).unwrap(), properties: properties() }),
            ),
            (signal(FOREIGN, at_unit, &changed), None),
            (signal(OWNER, at_unit, &7_u32), None),
            (signal(OWNER, (UNIT_PATH, UNIT, "PropertiesChanged"), &changed), None),
            (signal(OWNER, at_new, &job), Some(Signal::JobNew { id: 7, path: job_path, unit: unit() })),
            (signal(FOREIGN, at_new, &job), None),
            (signal(OWNER, (UNIT_PATH, MANAGER, "JobNew"), &job), None),
            (signal(OWNER, (MANAGER_PATH, UNIT, "JobNew"), &job), None),
            (signal(OWNER, at_new, &"kubelet.service"), None),
            (
                signal(OWNER, (MANAGER_PATH, MANAGER, "JobRemoved"), &removed),
                Some(Signal::JobRemoved { id: 7, unit: unit(), result: "done".into() }),
            ),
            (signal(OWNER, (MANAGER_PATH, MANAGER, "Reloading"), &false), Some(Signal::Reloaded)),
            (signal(OWNER, (MANAGER_PATH, MANAGER, "Reloading"), &true), None),
            (signal(BUS, at_owner, &new_owner), Some(Signal::Owner(Some(FOREIGN.into())))),
            (signal(BUS, at_owner, &(SYSTEMD, OWNER, "")), Some(Signal::Owner(None))),
            (signal(BUS, at_owner, &("org.other", "", FOREIGN)), None),
            (signal(BUS, at_new, &job), None),
            (signal(FOREIGN, at_owner, &new_owner), None),
            (signal(OWNER, at_owner, &new_owner), None),
        ];
        for (number, (message, wanted)) in rows.into_iter().enumerate() {
            assert_eq!(read(&message, Some(OWNER)), wanted, "row {number}");
        }
    }

    #[test]
    fn no_sender_counts_as_systemd_while_systemd_has_no_name() {
        let message = signal(OWNER, (MANAGER_PATH, MANAGER, "Reloading"), &false);
        assert_eq!(read(&message, None), None);
    }
}
