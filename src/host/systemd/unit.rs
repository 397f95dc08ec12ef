//! The properties of a unit that show whether its process runs and how it ended.

use std::collections::HashMap;
use std::time::Duration;

use zbus::{OwnedObjectPath, OwnedVariant};

/// The state of the unit, as systemd reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, `masked` …
    pub load_state: String,
    /// `active`, `inactive`, `failed`, `activating` …
    pub active_state: String,
    /// `running`, `dead`, `auto-restart`, `start-pre` …
    pub sub_state: String,
    /// `success`, `exit-code`, `signal`, `oom-kill`, `watchdog`, `start-limit-hit` …
    pub result: String,
    /// The main process, 0 if there is none.
    pub main_pid: i32,
    /// The main process that ran last, and how it ended.
    pub last: LastProcess,
    /// Whether it was ever started since boot.
    pub was_started: bool,
    /// How often `Restart=` has restarted it since it was last started by a job.
    pub restarts: u32,
    /// The ID of this run of the unit, in hexadecimal; another one after each start.
    pub invocation: String,
    /// `enabled`, `disabled`, `static` …
    pub file_state: String,
    /// How long systemd's watchdog waits for a sign of life; 0 if there is none.
    pub watchdog: Duration,
    /// `Restart=`: `always`, `on-failure`, `no` …
    pub restart: String,
}

impl UnitState {
    /// Whether `Restart=` restarts it after a clean end.
    pub fn restarts_after_success(&self) -> bool {
        ["always", "on-success"].contains(&self.restart.as_str())
    }

    /// Whether `Restart=` restarts it, but not after a clean end: `on-failure`, `on-abnormal`, `on-watchdog`, `on-abort`.
    pub fn restarts_after_failure_alone(&self) -> bool {
        self.restart.starts_with("on-") && self.restart != "on-success"
    }

    /// Whether `Restart=` restarts it after an error.
    pub fn restarts_after_failure(&self) -> bool {
        self.restart == "always" || self.restarts_after_failure_alone()
    }

    /// Whether systemd starts it at boot, or whenever what wants it starts.
    pub fn is_enabled(&self) -> bool {
        self.file_state.starts_with("enabled")
    }

    /// State, process and result in one line.
    pub fn summary(&self) -> String {
        let Self {
            active_state, sub_state, main_pid, result, restarts, last: LastProcess { pid, code, status }, ..
        } = self;
        let last = format!("last pid {pid}, code {code}, status {status}");
        format!("{active_state} ({sub_state}), main pid {main_pid}, Result={result}, {restarts} restarts, {last}")
    }

    /// Whether systemd waits to restart it by `Restart=`.
    pub fn is_about_to_restart(&self) -> bool {
        waits_to_restart(&self.sub_state)
    }
}

/// Whether a unit in this state waits to be restarted by `Restart=`. A stop job ends that state.
pub(super) fn waits_to_restart(sub_state: &str) -> bool {
    sub_state.starts_with("auto-restart") || sub_state.ends_with("-before-auto-restart")
}

/// How a unit's last main process ended; all 0 while none has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastProcess {
    pub pid: i32,
    /// `CLD_EXITED` 1, `CLD_KILLED` 2, `CLD_DUMPED` 3 (sigaction(2)).
    pub code: i32,
    /// Its exit code, or the signal.
    pub status: i32,
}

/// Takes in properties that were read or have changed.
pub(super) fn merge(unit: &mut UnitState, properties: &HashMap<String, OwnedVariant>) {
    for (name, value) in properties {
        match name.as_str() {
            "LoadState" => unit.load_state = read(value),
            "ActiveState" => unit.active_state = read(value),
            "SubState" => unit.sub_state = read(value),
            "Result" => unit.result = read(value),
            "MainPID" => unit.main_pid = read::<u32>(value).cast_signed(),
            "ExecMainPID" => unit.last.pid = read::<u32>(value).cast_signed(),
            "ExecMainCode" => unit.last.code = read(value),
            "ExecMainStatus" => unit.last.status = read(value),
            "InactiveExitTimestampMonotonic" => unit.was_started = read::<u64>(value) != 0,
            "NRestarts" => unit.restarts = read(value),
            "Restart" => unit.restart = read(value),
            "UnitFileState" => unit.file_state = read(value),
            "WatchdogUSec" => unit.watchdog = Duration::from_micros(read(value)),
            "InvocationID" => unit.invocation = hexadecimal(&read::<Vec<u8>>(value)),
            _ => {}
        }
    }
}

/// Services that are followed at most.
pub(super) const MAX_DEPENDENCIES: usize = 8;

/// The services without which systemd does not start the unit, and whether it also stops the unit when they fail: those of `BindsTo=`. With
/// those of `Requires=` the unit is stopped only if they are stopped by a job (systemd.unit(5)).
pub(super) fn dependencies(properties: &HashMap<String, OwnedVariant>) -> Vec<(String, bool)> {
    let names = |property| properties.get(property).map(read::<Vec<String>>).unwrap_or_default().into_iter();
    let bound = names("BindsTo").map(|name| (name, true)).chain(names("Requires").map(|name| (name, false)));
    bound.filter(|(name, _)| name.ends_with(".service")).take(MAX_DEPENDENCIES).collect()
}

/// A unit's `Job`; none if it has none, which systemd writes as number 0.
pub(super) fn job_id(value: &OwnedVariant) -> Option<(u32, OwnedObjectPath)> {
    let job: (u32, OwnedObjectPath) = read(value);
    (job.0 != 0).then_some(job)
}

/// A property's value; the type's default if it has another type.
pub(super) fn read<T: TryFrom<OwnedVariant> + Default>(value: &OwnedVariant) -> T {
    value.try_clone().ok().and_then(|value| T::try_from(value).ok()).unwrap_or_default()
}

/// An ID of bytes; nothing if all are 0, which means none.
fn hexadecimal(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return String::new();
    }
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use zbus::{Message, Variant};

    use super::*;

    #[test]
    fn the_services_that_the_unit_requires_are_found() {
        let list = |units: &[&str]| {
            let units: Vec<String> = units.iter().map(|unit| (*unit).to_owned()).collect();
            Variant::from(units).try_to_owned().unwrap()
        };
        let properties = HashMap::from([
            ("Requires".to_owned(), list(&["system.slice", "sysinit.target", "a.service"])),
            ("BindsTo".to_owned(), list(&["data.mount", "containerd.service"])),
        ]);
        let wanted = [("containerd.service".to_owned(), true), ("a.service".to_owned(), false)];
        assert_eq!(dependencies(&properties), wanted);
        assert!(dependencies(&HashMap::new()).is_empty());
    }

    #[test]
    fn properties_are_merged_by_name_and_type() {
        let mut unit = UnitState { result: "success".into(), ..UnitState::default() };
        let owned = |value: Variant<'_>| value.try_to_owned().unwrap();
        let properties = HashMap::from([
            ("MainPID".to_owned(), OwnedVariant::from(7_u32)),
            ("ExecMainPID".to_owned(), OwnedVariant::from(6_u32)),
            ("ExecMainStatus".to_owned(), OwnedVariant::from(9_i32)),
            ("InactiveExitTimestampMonotonic".to_owned(), OwnedVariant::from(5_u64)),
            ("ActiveState".to_owned(), owned(Variant::from("active"))),
            ("SubState".to_owned(), OwnedVariant::from(1_u32)),
            ("InvocationID".to_owned(), owned(Variant::from(vec![0xab_u8, 1]))),
            ("Unheard".to_owned(), OwnedVariant::from(1_u32)),
        ]);
        // As they come over the bus.
        let message = Message::signal("/a", "a.a", "A").build(&properties).unwrap();
        merge(&mut unit, &message.body().deserialize().unwrap());
        let wanted = UnitState {
            active_state: "active".into(),
            result: "success".into(),
            main_pid: 7,
            last: LastProcess { pid: 6, code: 0, status: 9 },
            was_started: true,
            invocation: "ab01".into(),
            ..UnitState::default()
        };
        assert_eq!(unit, wanted);
    }
}
