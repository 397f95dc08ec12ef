//! One file as written, and the last word of several on each key, with the place where it was said.

use std::{borrow::Cow, collections::BTreeMap, ops::Range, path::PathBuf};

use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeInteger, DeTable, DeValue, Deserializer},
};

use super::{
    error::{ConfigError, Source},
    keys::{self, Key, Kind},
    reasons::{self, MergedReasons, ReasonFragment},
};
use crate::health::ConditionType;

/// One file as written: nothing has to be there, and nothing else may.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fragment {
    node: NodeFragment,
    kubernetes: KubernetesFragment,
    kubelet: KubeletFragment,
    runtime: RuntimeFragment,
    intent: IntentFragment,
    conditions: BTreeMap<String, ConditionFragment>,
    reasons: BTreeMap<String, ReasonFragment>,
    taints: TaintsFragment,
    events: EventsFragment,
    metrics: MetricsFragment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConditionFragment {
    publish: Option<Spanned<bool>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TaintsFragment {
    conditions: Option<Spanned<Vec<String>>>,
    prefix: Option<Spanned<String>>,
    effect: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventsFragment {
    per_hour: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MetricsFragment {
    socket: Option<Spanned<String>>,
    socket_mode: Option<Spanned<String>>,
    textfile_dir: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeFragment {
    name: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KubernetesFragment {
    kubeconfig: Option<Spanned<String>>,
    kubelet_identity: Option<Spanned<bool>>,
    publish: Option<Spanned<String>>,
    dialects: Option<Spanned<Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KubeletFragment {
    unit: Option<Spanned<String>>,
    pid_file: Option<Spanned<String>>,
    healthz_url: Option<Spanned<String>>,
    healthy_for_secs: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RuntimeFragment {
    enabled: Option<Spanned<bool>>,
    endpoint: Option<Spanned<String>>,
    unit: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct IntentFragment {
    cloud_provider: Option<Spanned<String>>,
    node_ip: Option<Spanned<String>>,
    provider_id: Option<Spanned<String>>,
    node_labels: Option<Spanned<String>>,
}

/// A value and where it was written, for the error that may be said about it later.
#[derive(Debug)]
pub(super) struct Placed<T> {
    value: T,
    path: PathBuf,
    line: usize,
}

impl<T> Placed<T> {
    /// The value made into what the agent needs, or an error at its place about `key`.
    pub(super) fn check<U>(
        self,
        key: &str,
        check: impl FnOnce(T) -> Result<U, String>,
    ) -> Result<U, ConfigError> {
        check(self.value).map_err(|problem| ConfigError::Value {
            path: self.path,
            line: self.line,
            key: key.to_owned(),
            problem,
        })
    }
}

/// The last word on each key.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) node_name: Option<Placed<String>>,
    pub(super) kubeconfig: Option<Placed<String>>,
    pub(super) lends: Option<Placed<bool>>,
    pub(super) publish: Option<Placed<String>>,
    pub(super) dialects: Option<Placed<Vec<String>>>,
    pub(super) condition_publish: BTreeMap<String, Option<Placed<bool>>>,
    pub(super) reasons: MergedReasons,
    pub(super) taints_conditions: Option<Placed<Vec<String>>>,
    pub(super) taints_prefix: Option<Placed<String>>,
    pub(super) taints_effect: Option<Placed<String>>,
    pub(super) events_per_hour: Option<Placed<i64>>,
    pub(super) kubelet_unit: Option<Placed<String>>,
    pub(super) kubelet_pid_file: Option<Placed<String>>,
    pub(super) kubelet_healthz_url: Option<Placed<String>>,
    pub(super) kubelet_healthy_for_secs: Option<Placed<i64>>,
    pub(super) runtime_enabled: Option<Placed<bool>>,
    pub(super) runtime_endpoint: Option<Placed<String>>,
    pub(super) runtime_unit: Option<Placed<String>>,
    pub(super) intent_cloud_provider: Option<Placed<String>>,
    pub(super) intent_node_ip: Option<Placed<String>>,
    pub(super) intent_provider_id: Option<Placed<String>>,
    pub(super) intent_node_labels: Option<Placed<String>>,
    pub(super) metrics_socket: Option<Placed<String>>,
    pub(super) metrics_socket_mode: Option<Placed<String>>,
    pub(super) metrics_textfile_dir: Option<Placed<String>>,
    /// Every [`Kind::Number`] that was written, by table and name.
    pub(super) numbers: Numbers,
}

/// The checks' thresholds, by table and name.
pub(super) type Numbers = BTreeMap<(&'static str, &'static str), u32>;

impl Merged {
    /// Reads one more file, whose keys win over those read before.
    pub(super) fn absorb(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        let Fragment {
            node,
            kubernetes,
            kubelet,
            runtime,
            intent,
            conditions,
            reasons,
            taints,
            events,
            metrics,
        } = parse(source, &mut self.numbers)?;
        place(&mut self.node_name, node.name, source);
        place(&mut self.kubeconfig, kubernetes.kubeconfig, source);
        place(&mut self.lends, kubernetes.kubelet_identity, source);
        place(&mut self.publish, kubernetes.publish, source);
        place(&mut self.dialects, kubernetes.dialects, source);
        for (name, condition) in conditions {
            let slot = self.condition_publish.entry(name).or_default();
            place(slot, condition.publish, source);
        }
        self.reasons.absorb(reasons, source);
        place(&mut self.taints_conditions, taints.conditions, source);
        place(&mut self.taints_prefix, taints.prefix, source);
        place(&mut self.taints_effect, taints.effect, source);
        place(&mut self.events_per_hour, events.per_hour, source);
        place(&mut self.runtime_enabled, runtime.enabled, source);
        place(&mut self.runtime_endpoint, runtime.endpoint, source);
        place(&mut self.runtime_unit, runtime.unit, source);
        place(&mut self.kubelet_unit, kubelet.unit, source);
        place(&mut self.kubelet_pid_file, kubelet.pid_file, source);
        place(&mut self.kubelet_healthz_url, kubelet.healthz_url, source);
        place(
            &mut self.kubelet_healthy_for_secs,
            kubelet.healthy_for_secs,
            source,
        );
        place(
            &mut self.intent_cloud_provider,
            intent.cloud_provider,
            source,
        );
        place(&mut self.intent_node_ip, intent.node_ip, source);
        place(&mut self.intent_provider_id, intent.provider_id, source);
        place(&mut self.intent_node_labels, intent.node_labels, source);
        place(&mut self.metrics_socket, metrics.socket, source);
        place(&mut self.metrics_socket_mode, metrics.socket_mode, source);
        place(&mut self.metrics_textfile_dir, metrics.textfile_dir, source);
        Ok(())
    }
}

pub(super) fn place<T>(
    slot: &mut Option<Placed<T>>,
    written: Option<Spanned<T>>,
    source: &Source<'_>,
) {
    if let Some(written) = written {
        *slot = Some(Placed {
            line: source.line(written.span().start),
            path: source.path.to_owned(),
            value: written.into_inner(),
        });
    }
}

/// Reads one file. The registry is asked first, because it says what may have been meant; serde only then.
pub(super) fn parse(source: &Source<'_>, numbers: &mut Numbers) -> Result<Fragment, ConfigError> {
    let mut document = DeTable::parse(source.text).map_err(|error| source.syntax_error(&error))?;
    let problems = document
        .get_ref()
        .iter()
        .flat_map(|(name, value)| section_problems(name, value));
    if let Some(first) = problems.min_by_key(|problem| problem.span.start) {
        return Err(source.error(&first.span, first.key, first.what));
    }
    take_numbers(document.get_mut(), numbers);
    Fragment::deserialize(Deserializer::from(document)).map_err(|error| source.syntax_error(&error))
}

/// Takes the thresholds out of a document whose keys are known to be good.
fn take_numbers(document: &mut DeTable<'_>, numbers: &mut Numbers) {
    for key in keys::KEYS {
        let Kind::Number(..) = key.kind else { continue };
        let Some(DeValue::Table(table)) = document.get_mut(key.section).map(Spanned::get_mut)
        else {
            continue;
        };
        let value = table.remove(key.name);
        let is_done = table.is_empty();
        if let Some(number) = value.and_then(|value| value.get_ref().as_integer().and_then(number))
        {
            numbers.insert((key.section, key.name), number);
        }
        if is_done {
            document.remove(key.section);
        }
    }
}

fn number(integer: &DeInteger<'_>) -> Option<u32> {
    u32::from_str_radix(integer.as_str(), integer.radix()).ok()
}

struct Problem {
    span: Range<usize>,
    key: String,
    what: String,
}

type Name<'a> = Spanned<Cow<'a, str>>;
/// The problems of one condition's or reason's table.
type OfOne = fn(&Name<'_>, &Spanned<DeValue<'_>>) -> Vec<Problem>;

fn section_problems(name: &Name<'_>, value: &Spanned<DeValue<'_>>) -> Vec<Problem> {
    let section = name.get_ref().as_ref();
    let problem = |what: String| {
        vec![Problem {
            span: name.span(),
            key: section.to_owned(),
            what,
        }]
    };
    let (of_one, example): (OfOne, &str) = match section {
        "conditions" => (condition_problems, "condition: [conditions.KubeletHealthy]"),
        _ => (reason_problems, "reason: [reasons.KubeletCrashed]"),
    };
    if ["conditions", "reasons"].contains(&section) {
        let DeValue::Table(each) = value.get_ref() else {
            return problem(format!("wants a table for each {example}"));
        };
        return each.iter().flat_map(|(n, v)| of_one(n, v)).collect();
    }
    if !keys::sections().contains(&section) {
        let is_table = value.get_ref().is_table();
        return problem(keys::unknown_section(section, is_table));
    }
    let DeValue::Table(table) = value.get_ref() else {
        let found = value.get_ref().type_str();
        return problem(format!(
            "wants a table: write [{section}] and its keys below; found: {found}"
        ));
    };
    table_problems(section, section, table)
}

/// `[conditions.TYPE]`.
fn condition_problems(name: &Name<'_>, value: &Spanned<DeValue<'_>>) -> Vec<Problem> {
    let known: Vec<_> = ConditionType::ALL.iter().map(|t| t.as_str()).collect();
    let is_known = known.contains(&name.get_ref().as_ref());
    let refused =
        (!is_known).then(|| format!("not a condition of ours (known here: {})", known.join(", ")));
    table_of_one("conditions", keys::CONDITION, name, value, refused)
}

/// `[reasons.NAME]`.
fn reason_problems(name: &Name<'_>, value: &Spanned<DeValue<'_>>) -> Vec<Problem> {
    let refused = reasons::refused(name.get_ref());
    table_of_one("reasons", keys::REASON, name, value, refused)
}

/// A table below another, of one condition or reason; `refused`: there is none of that name, and why.
fn table_of_one(
    above: &str,
    section: &str,
    name: &Name<'_>,
    value: &Spanned<DeValue<'_>>,
    refused: Option<String>,
) -> Vec<Problem> {
    let shown = format!("{above}.{}", name.get_ref());
    let what = match (refused, value.get_ref()) {
        (Some(refused), _) => refused,
        (None, DeValue::Table(table)) => return table_problems(section, &shown, table),
        (None, other) => format!(
            "wants a table: write [{shown}] and its keys below; found: {}",
            other.type_str()
        ),
    };
    vec![Problem {
        span: name.span(),
        key: shown,
        what,
    }]
}

/// The problems of the keys in one table: `section` is where the registry has them, `shown` what the operator wrote.
fn table_problems(section: &str, shown: &str, table: &DeTable<'_>) -> Vec<Problem> {
    table
        .iter()
        .filter_map(|(name, value)| {
            key_problem(section, name.get_ref(), value.get_ref()).map(|what| Problem {
                span: name.span(),
                key: format!("{shown}.{}", name.get_ref()),
                what,
            })
        })
        .collect()
}

fn is_list_of_text(value: &DeValue<'_>) -> bool {
    let list = value.as_array();
    list.is_some_and(|list| list.iter().all(|item| item.get_ref().is_str()))
}

/// Beyond what TOML promises to keep, where serde would speak of `i64`.
fn too_large(integer: &DeInteger<'_>) -> bool {
    i64::from_str_radix(integer.as_str(), integer.radix()).is_err()
}

fn key_problem(section: &str, name: &str, value: &DeValue<'_>) -> Option<String> {
    let Some(key) = keys::find(section, name) else {
        return Some(keys::unknown_key(section, name));
    };
    let wanted = match key.kind {
        Kind::Text if !value.is_str() => "text in quotes",
        Kind::Integer | Kind::Number(..) if !value.is_integer() => "a whole number without quotes",
        Kind::Integer if value.as_integer().is_some_and(too_large) => {
            return Some(format!("out of bounds; wants {}", key.bounds));
        }
        Kind::Number(min, max) => {
            let within = value
                .as_integer()
                .and_then(number)
                .is_some_and(|number| (min..=max).contains(&number));
            return (!within).then(|| format!("out of bounds; wants {}", key.bounds));
        }
        Kind::Boolean if !value.is_bool() => "true or false without quotes",
        Kind::List if !is_list_of_text(value) => "texts in quotes, in brackets",
        Kind::Text | Kind::Integer | Kind::Boolean | Kind::List => return None,
    };
    let Key { example, .. } = key;
    let found = value.type_str();
    Some(format!(
        "wants {wanted}, as {name} = {example}; found: {found}"
    ))
}
