//! The configuration that the agent may rely on: every value was checked, every default is filled in.

use std::{path::PathBuf, time::Duration};

use super::{
    error::ConfigError,
    fragment::{Merged, Numbers, Placed},
    kept::StandIn,
    keys, kubernetes, values,
};
use crate::{
    bootstrap::Patience,
    desired::{Choice, taints},
    health::{ConditionType, turned::TurnedDown},
    kubelet::{layers, snapshot::Intent},
};

/// What the operator has asked for, valid and complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `[node]`.
    pub node: NodeSettings,
    /// `[kubernetes]`.
    pub kubernetes: kubernetes::KubernetesSettings,
    /// `[kubelet]`.
    pub kubelet: KubeletSettings,
    /// `[runtime]`.
    pub runtime: RuntimeSettings,
    /// `[intent]`.
    pub intent: Intent,
    /// What is told: `[kubernetes] publish` and `dialects`, `[conditions.TYPE]`.
    pub choice: Choice,
    /// `[reasons.NAME]`.
    pub reasons: TurnedDown,
    /// `[taints]`.
    pub taints: taints::Rules,
    /// `[events]`.
    pub events: EventSettings,
    /// `[metrics]`, but for its number.
    pub metrics: MetricsSettings,
    /// Why this is not the configuration that is written; `None`: it is.
    pub stand_in: Option<StandIn>,
    /// The thresholds that differ from their defaults.
    numbers: Numbers,
}

impl Settings {
    /// A threshold of a check, as written or its default: the key `name` of the table `section`, a row of
    /// [`super::KEYS`] with [`super::Kind::Number`].
    pub fn number(&self, section: &'static str, name: &'static str) -> u32 {
        let written = self.numbers.get(&(section, name)).copied();
        written.unwrap_or_else(|| keys::default_number(section, name))
    }

    /// A threshold in seconds.
    pub fn seconds(&self, section: &'static str, name: &'static str) -> Duration {
        Duration::from_secs(self.number(section, name).into())
    }

    /// How long each stage of a bootstrap may be waited for.
    pub fn patience(&self) -> Patience {
        Patience::new(|key| self.seconds("bootstrap", key))
    }
}

/// How much Events may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSettings {
    /// Requests an hour at most; 0: no events.
    pub per_hour: u32,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self { per_hour: 20 }
    }
}

/// Where the metrics are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The socket.
    pub socket: SocketPlace,
    /// Its mode.
    pub socket_mode: u32,
    /// The folder of the text file; `None`: there is no file.
    pub textfile_dir: Option<PathBuf>,
}

/// Where the metrics' socket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketPlace {
    /// In the runtime folder.
    Default,
    /// There, an absolute path.
    At(PathBuf),
    /// Nowhere.
    Off,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            socket: SocketPlace::Default,
            socket_mode: 0o660,
            textfile_dir: None,
        }
    }
}

/// Which Node is ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSettings {
    /// Its name, an RFC 1123 subdomain; `None`: the identity or the host name says it.
    pub name: Option<String>,
}

/// Which kubelet to watch, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletSettings {
    /// The name of its systemd service unit.
    pub unit: String,
    /// A file with its process id, an absolute path, for a kubelet outside systemd.
    pub pid_file: Option<PathBuf>,
    /// Its health endpoint, `http://ADDRESS[:PORT]/PATH`; the address is an IP address, so that nothing is looked up.
    /// `None`: the kubelet's own arguments and configuration say it.
    pub healthz_url: Option<String>,
    /// How long it must have been healthy before a problem is over; at most an hour.
    pub healthy_for: Duration,
}

/// The unit's name if the operator gave none, and another one of [`layers::NAMES`] does not run the kubelet.
const DEFAULT_UNIT: &str = "kubelet.service";
/// k0s has its kubelet as a child, whose arguments are not resolved from files.
const K0S_UNITS: [&str; 2] = ["k0sworker.service", "k0scontroller.service"];

impl KubeletSettings {
    /// The units that could run the kubelet, the first that is there to be watched: the operator's, or all known ones.
    pub fn units(&self) -> Vec<String> {
        if self.unit != DEFAULT_UNIT {
            return vec![self.unit.clone()];
        }
        let known = layers::NAMES.into_iter().chain(K0S_UNITS);
        known.map(str::to_owned).collect()
    }
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            unit: DEFAULT_UNIT.to_owned(),
            pid_file: None,
            healthz_url: None,
            healthy_for: Duration::from_mins(1),
        }
    }
}

/// Which container runtime to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// Whether to watch one.
    pub enabled: bool,
    /// Its socket, an absolute path; `None`: the kubelet says it.
    pub socket: Option<PathBuf>,
    /// Its unit; `None`: the one of the process at the socket.
    pub unit: Option<String>,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: None,
            unit: None,
        }
    }
}

impl TryFrom<Merged> for Settings {
    type Error = ConfigError;

    fn try_from(mut merged: Merged) -> Result<Self, ConfigError> {
        let mut numbers = std::mem::take(&mut merged.numbers);
        numbers.retain(|(section, name), value| *value != keys::default_number(section, name));
        let choice = choice(&mut merged)?;
        let taints = taint_rules(&mut merged, &choice, &numbers)?;
        let intent = intent(&mut merged)?;
        let runtime = runtime(&mut merged)?;
        let metrics = metrics(&mut merged)?;
        let kubernetes = kubernetes::settings(&mut merged)?;
        let per_hour = merged
            .events_per_hour
            .map(|placed| placed.check("events.per_hour", values::per_hour))
            .transpose()?;
        let default = KubeletSettings::default();
        let unit = text(
            merged.kubelet_unit,
            "kubelet.unit",
            values::service_unit_name,
        )?;
        let healthy_for = merged
            .kubelet_healthy_for_secs
            .map(|placed| placed.check("kubelet.healthy_for_secs", values::up_to_an_hour))
            .transpose()?;
        Ok(Self {
            stand_in: None,
            reasons: std::mem::take(&mut merged.reasons).settle()?,
            numbers,
            metrics,
            choice,
            taints,
            events: per_hour.map_or_else(EventSettings::default, |per_hour| EventSettings {
                per_hour,
            }),
            intent,
            runtime,
            node: NodeSettings {
                name: text(merged.node_name, "node.name", values::node_name)?,
            },
            kubernetes,
            kubelet: KubeletSettings {
                unit: unit.unwrap_or(default.unit),
                pid_file: text(
                    merged.kubelet_pid_file,
                    "kubelet.pid_file",
                    values::absolute_path,
                )?,
                healthz_url: text(
                    merged.kubelet_healthz_url,
                    "kubelet.healthz_url",
                    values::healthz_url,
                )?,
                healthy_for: healthy_for.unwrap_or(default.healthy_for),
            },
        })
    }
}

fn runtime(merged: &mut Merged) -> Result<RuntimeSettings, ConfigError> {
    let enabled = merged.runtime_enabled.take();
    let enabled = enabled.map(|placed| placed.check("", Ok)).transpose()?;
    Ok(RuntimeSettings {
        enabled: enabled.unwrap_or(true),
        socket: text(
            merged.runtime_endpoint.take(),
            "runtime.endpoint",
            values::runtime_endpoint,
        )?,
        unit: text(
            merged.runtime_unit.take(),
            "runtime.unit",
            values::service_unit_name,
        )?,
    })
}

fn metrics(merged: &mut Merged) -> Result<MetricsSettings, ConfigError> {
    let default = MetricsSettings::default();
    let socket = text(
        merged.metrics_socket.take(),
        "metrics.socket",
        values::socket_place,
    )?;
    let mode = text(
        merged.metrics_socket_mode.take(),
        "metrics.socket_mode",
        values::socket_mode,
    )?;
    Ok(MetricsSettings {
        socket: socket.unwrap_or(default.socket),
        socket_mode: mode.unwrap_or(default.socket_mode),
        textfile_dir: text(
            merged.metrics_textfile_dir.take(),
            "metrics.textfile_dir",
            values::absolute_path,
        )?,
    })
}

fn intent(merged: &mut Merged) -> Result<Intent, ConfigError> {
    let node_labels = text(
        merged.intent_node_labels.take(),
        "intent.node_labels",
        values::node_labels,
    )?;
    Ok(Intent {
        cloud_provider: text(
            merged.intent_cloud_provider.take(),
            "intent.cloud_provider",
            values::cloud_provider,
        )?,
        node_labels: node_labels.unwrap_or_default(),
        node_ip: text(
            merged.intent_node_ip.take(),
            "intent.node_ip",
            values::node_ip,
        )?,
        provider_id: text(
            merged.intent_provider_id.take(),
            "intent.provider_id",
            values::provider_id,
        )?,
    })
}

fn choice(merged: &mut Merged) -> Result<Choice, ConfigError> {
    let default = Choice::default();
    let shadow = text(
        merged.publish.take(),
        "kubernetes.publish",
        values::is_shadow,
    )?;
    let dialects = list(
        merged.dialects.take(),
        "kubernetes.dialects",
        values::dialects,
    )?;
    let mut untold = Vec::new();
    for kind in ConditionType::ALL {
        let placed = merged.condition_publish.remove(kind.as_str()).flatten();
        let publish = placed.map(|placed| placed.check("", Ok)).transpose()?;
        if publish == Some(false) {
            untold.push(*kind);
        }
    }
    Ok(Choice {
        dialects: dialects.unwrap_or(default.dialects),
        untold,
        shadow: shadow.unwrap_or(default.shadow),
    })
}

/// What is told nowhere is no taint either.
fn taint_rules(
    merged: &mut Merged,
    choice: &Choice,
    numbers: &Numbers,
) -> Result<taints::Rules, ConfigError> {
    let default = taints::Rules::default();
    let conditions = list(
        merged.taints_conditions.take(),
        "taints.conditions",
        values::conditions,
    )?;
    let mut conditions = conditions.unwrap_or_default();
    conditions.retain(|kind| choice.tells(*kind));
    let prefix = text(
        merged.taints_prefix.take(),
        "taints.prefix",
        values::taint_prefix,
    )?;
    let effect = text(
        merged.taints_effect.take(),
        "taints.effect",
        values::taint_effect,
    )?;
    Ok(taints::Rules {
        conditions,
        prefix: prefix.unwrap_or(default.prefix),
        effect: effect.unwrap_or(default.effect),
        after: numbers
            .get(&("taints", "after_secs"))
            .map_or(default.after, |secs| Duration::from_secs((*secs).into())),
    })
}

fn list<T>(
    placed: Option<Placed<Vec<String>>>,
    key: &str,
    check: impl FnOnce(&[String]) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    placed
        .map(|placed| placed.check(key, |value| check(&value)))
        .transpose()
}

pub(super) fn text<T>(
    placed: Option<Placed<String>>,
    key: &str,
    check: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    placed
        .map(|placed| placed.check(key, |value| check(&value)))
        .transpose()
}
