//! Types whose values are checked while they are read, so that an error has the line of the value.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ReasonSettings;
use crate::condition::Reason;

/// A number of seconds from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secs<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Secs<MIN, MAX> {
    /// A default; it must lie within the bounds.
    pub const fn new(secs: u64) -> Self {
        assert!(MIN <= secs && secs <= MAX, "a default within its bounds");
        Self(secs)
    }

    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Secs<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Secs<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let secs = i64::deserialize(deserializer)?;
        let in_range = u64::try_from(secs).ok().filter(|secs| (MIN..=MAX).contains(secs));
        let wrong = || de::Error::custom(format!("{secs} is out of range: wanted {MIN} to {MAX} seconds"));
        in_range.map(Self).ok_or_else(wrong)
    }
}

/// An address to listen on.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| format!("{text:?} is no address: wanted IP:PORT, such as 127.0.0.1:20258 or [::1]:20258");
    text.parse().map_err(wrong).map_err(de::Error::custom)
}

/// `[reasons]`. Health cannot be turned down, nor can what every condition can have, which nodevigil itself sets.
pub fn reasons<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Reason, ReasonSettings>, D::Error> {
    let reasons = BTreeMap::<Name, ReasonSettings>::deserialize(deserializer)?;
    Ok(reasons.into_iter().map(|(name, settings)| (name.0, settings)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Name(Reason);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let Some(reason) = Reason::by_name(&name) else {
            return Err(format!("no reason is named {name}: wanted one that `nodevigil explain` lists"));
        };
        match reason.spec().condition {
            Some(condition) if reason != Reason::healthy(condition) => Ok(Self(reason)),
            _ => Err(format!("{name} cannot be turned down: wanted the reason of a problem")),
        }
    }
}
