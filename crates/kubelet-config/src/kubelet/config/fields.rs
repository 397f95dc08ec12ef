//! Every field of `kubelet.config.k8s.io/v1beta1` `KubeletConfiguration`: `fields.txt`.

use std::sync::LazyLock;

use crate::kubelet::table::{minor, rows};
use crate::kubelet::version::{Minor, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Float,
    String,
    /// Go's duration, as text: `1m30s`.
    Duration,
    /// A duration, as text or as a number of nanoseconds (`logging.flushFrequency` alone).
    Flexible,
    /// A quantity, as text or as a number: `100Mi`.
    Quantity,
    /// A structure, its fields each with an entry of its own.
    Object,
    /// Of structures the fields are under `name[].field`.
    List(&'static Kind),
    /// With keys of the user's.
    Map(&'static Kind),
}

/// What counts where a file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldDefault {
    /// This JSON; `null` where an unset field, in Go a nil pointer, means something else than zero.
    IfAbsent(&'static str),
    /// This JSON, and a written zero or empty string counts as nothing too: the field is no pointer in Go.
    UnlessZero(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its path, with dots; `[]` after a list of structures.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// The release that brought it; `None` for those that 1.24 had. None was removed up to 1.37.
    pub(crate) since: Option<Minor>,
    /// Whether a node does not join, is not safe or does not protect itself if the field is lost.
    pub(crate) is_essential: bool,
    /// What counts without it, of a kubelet that was given `--config`, in the newest release of the table.
    pub(crate) default: FieldDefault,
}

const TEXT: &str = include_str!("fields.txt");

/// The fields, sorted by path.
pub(crate) static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| rows(TEXT).filter_map(field).collect());

fn field([path, kind, since, essential, counts, default]: [&'static str; 6]) -> Option<Field> {
    let default = match counts {
        "absent" => FieldDefault::IfAbsent(default),
        "absent-or-zero" => FieldDefault::UnlessZero(default),
        _ => return None,
    };
    Some(Field { path, kind: self::kind(kind)?, since: minor(since), is_essential: essential == "essential", default })
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "Bool" => Kind::Bool,
        "Int32" => Kind::Int32,
        "Int64" => Kind::Int64,
        "Uint32" => Kind::Uint32,
        "Float" => Kind::Float,
        "String" => Kind::String,
        "Duration" => Kind::Duration,
        "Flexible" => Kind::Flexible,
        "Quantity" => Kind::Quantity,
        "Object" => Kind::Object,
        "list-String" => Kind::List(&Kind::String),
        "list-Int32" => Kind::List(&Kind::Int32),
        "list-Object" => Kind::List(&Kind::Object),
        "map-String" => Kind::Map(&Kind::String),
        "map-Bool" => Kind::Map(&Kind::Bool),
        "map-Quantity" => Kind::Map(&Kind::Quantity),
        "map-list-String" => Kind::Map(&Kind::List(&Kind::String)),
        _ => return None,
    })
}

impl Field {
    /// Whether the kubelet of that version knows the field; an unknown version counts as a new one.
    pub(crate) fn is_known_in(&self, version: Option<&Version>) -> bool {
        match (self.since, version) {
            (Some(since), Some(version)) => since <= version.minor,
            _ => true,
        }
    }

    /// Go makes an empty text of a null, unless the field is a pointer, and takes no such duration.
    pub(super) fn refuses_null(&self) -> bool {
        let (FieldDefault::UnlessZero(default) | FieldDefault::IfAbsent(default)) = self.default;
        self.kind == Kind::Duration && (default == "\"0s\"" || self.default == FieldDefault::UnlessZero(default))
    }
}

pub(crate) fn find(path: &str) -> Option<&'static Field> {
    FIELDS.binary_search_by(|field| field.path.cmp(path)).ok().map(|index| &FIELDS[index])
}

/// The field of a key at that path, perhaps of another case: Go's own decoder takes it.
pub(super) fn of_key(path: &str, any_case: bool) -> Option<&'static Field> {
    let of_any_case = || FIELDS.iter().find(|field| any_case && field.path.eq_ignore_ascii_case(path));
    find(path).or_else(of_any_case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_field_and_its_parents_are_structures() {
        assert_eq!(FIELDS.len(), rows::<6>(TEXT).count());
        assert!(FIELDS.is_sorted_by_key(|field| field.path));
        for field in FIELDS.iter() {
            let parent = field.path.rsplit_once('.').and_then(|(parent, _)| find(parent.trim_end_matches("[]")));
            let is_structure =
                parent.is_some_and(|parent| matches!(parent.kind, Kind::Object | Kind::List(Kind::Object)));
            assert_eq!(is_structure, field.path.contains('.'), "{}", field.path);
            let (FieldDefault::IfAbsent(default) | FieldDefault::UnlessZero(default)) = field.default;
            assert!(serde_json::from_str::<serde_json::Value>(default).is_ok(), "{}", field.path);
        }
    }
}
