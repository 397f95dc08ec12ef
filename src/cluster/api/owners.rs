//! Who owns our condition types on the Node, by `metadata.managedFields`: read while parsing, only what concerns a type
//! of ours is kept.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::FIELD_MANAGER;
use crate::desired::PublishedType;

/// Managers whose names are kept of one Node; the rest counts as the last of them.
const MAX_MANAGERS: usize = 64;
/// A manager's name is at most 128 bytes by the API; longer ones are cut.
const MAX_NAME_BYTES: usize = 128;
/// What the API server calls the owner of fields that nobody has applied or updated since it keeps books.
const NOBODY: &str = "before-first-apply";

/// Who owns one of our types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The type.
    pub r#type: PublishedType,
    /// Whether we own some of it.
    pub ours: bool,
    /// The field manager that owns its status beside us, or instead of us.
    pub foreign: Option<String>,
}

/// One entry of `metadata.managedFields`.
#[derive(Deserialize)]
pub(super) struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default, rename = "fieldsV1")]
    fields: Fields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    #[serde(rename = "f:status")]
    status: StatusFields,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusFields {
    #[serde(rename = "f:conditions")]
    conditions: OwnedTypes,
}

/// What of each of our types an entry owns.
#[derive(Default)]
struct OwnedTypes(Vec<(PublishedType, OwnedFields)>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnedFields {
    #[serde(rename = "f:status")]
    status: Option<IgnoredAny>,
}

impl<'de> Deserialize<'de> for OwnedTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfOurs;
        impl<'de> Visitor<'de> for OfOurs {
            type Value = OwnedTypes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of conditions by their keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnedTypes, A::Error> {
                let mut owned = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    match type_of(&key) {
                        // A table's worth at most, whatever is written there.
                        Some(r#type) if !owned.iter().any(|(t, _)| *t == r#type) => {
                            owned.push((r#type, map.next_value()?));
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(OwnedTypes(owned))
            }
        }
        deserializer.deserialize_map(OfOurs)
    }
}

/// `k:{"type":"KubeletHealthy"}`.
fn type_of(key: &str) -> Option<PublishedType> {
    let name = key.strip_prefix("k:{\"type\":\"")?.strip_suffix("\"}")?;
    PublishedType::parse(name)
}

/// Who owns what of our types; types that nobody owns are left out.
pub(super) fn owners(entries: Vec<ManagedFields>) -> Vec<Ownership> {
    let mut owners: Vec<Ownership> = Vec::new();
    for entry in entries.into_iter().take(MAX_MANAGERS) {
        for (r#type, fields) in entry.fields.status.conditions.0 {
            let at = owners.iter().position(|o| o.r#type == r#type);
            let at = at.unwrap_or_else(|| {
                owners.push(Ownership {
                    r#type,
                    ours: false,
                    foreign: None,
                });
                owners.len() - 1
            });
            let owner = &mut owners[at];
            if entry.manager == FIELD_MANAGER {
                owner.ours = true;
            } else if fields.status.is_some() && entry.manager != NOBODY {
                let end = entry.manager.floor_char_boundary(MAX_NAME_BYTES);
                owner
                    .foreign
                    .get_or_insert_with(|| entry.manager[..end].to_owned());
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, fields: &serde_json::Value) -> ManagedFields {
        serde_json::from_value(json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "subresource": "status",
        }))
        .unwrap()
    }

    #[test]
    fn only_who_owns_a_status_of_ours_is_kept() {
        let of = |name: &str, fields: serde_json::Value| json!({"f:status": {"f:conditions": {".": {}, format!("k:{{\"type\":\"{name}\"}}"): fields}}});
        let owners = owners(vec![
            entry("kubelet", &json!({"f:metadata": {"f:labels": {".": {}}}})),
            entry("kubelet", &of("Ready", json!({"f:status": {}}))),
            entry(
                "nodevigil",
                &of("KubeletHealthy", json!({".": {}, "f:status": {}})),
            ),
            entry(
                "kubectl-edit",
                &of("KubeletHealthy", json!({"f:message": {}})),
            ),
            entry(
                "before-first-apply",
                &of("KubeletConfigValid", json!({"f:status": {}})),
            ),
            entry(
                "node-problem-detector",
                &of(
                    "KubeletUnhealthy",
                    json!({"f:status": {}, "f:lastTransitionTime": {}}),
                ),
            ),
        ]);
        let said = |r#type, ours, foreign: Option<&str>| Ownership {
            r#type,
            ours,
            foreign: foreign.map(str::to_owned),
        };
        assert_eq!(
            owners,
            [
                said(PublishedType::KubeletHealthy, true, None),
                said(PublishedType::KubeletConfigValid, false, None),
                said(
                    PublishedType::KubeletUnhealthy,
                    false,
                    Some("node-problem-detector")
                ),
            ]
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let fields = json!({"f:status": {"f:conditions": {"k:{\"type\":\"KubeletHealthy\"}": {"f:status": {}}}}});
        let many = (0..1000).map(|_| entry(&"ä".repeat(500), &fields));
        let owners = owners(many.collect());
        assert_eq!(owners.len(), 1);
        assert!(owners[0].foreign.as_ref().unwrap().len() <= MAX_NAME_BYTES);
    }
}
