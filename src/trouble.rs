//! Troubles: what prevents nodevigil itself from working. Each is a metric, a line of `status`, and once an hour an Event, but never a condition.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// A kind of trouble. There is at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    ConfigRefused,
    BusLost,
    KernelLogUnreadable,
    IdentityUnusable,
    CredentialExpiring,
    ApiRefused,
    NodeMissing,
    ForeignOwner,
    CheckRefused,
    PauseRefused,
    MetricsNotServed,
    RecordsNotUploaded,
}

impl Trouble {
    /// All kinds: the name of each in metrics, `status` and Events, and what it means.
    #[rustfmt::skip]
    pub const ALL: [(Self, &str, &str); 12] = [
        (Self::ConfigRefused, "ConfigRefused", "The settings are invalid. The last accepted ones are in effect."),
        (Self::BusLost, "BusLost", "There is no D-Bus connection to systemd."),
        (Self::KernelLogUnreadable, "KernelLogUnreadable", "/dev/kmsg cannot be read."),
        (Self::IdentityUnusable, "IdentityUnusable", "No identity for the API server can be used."),
        (Self::CredentialExpiring, "CredentialExpiring", "The credential for the API server expires soon, and nothing renews it."),
        (Self::ApiRefused, "ApiRefused", "The API server refuses a request of nodevigil: a permission is missing, an admission policy \
            denies it, or the API server cannot write."),
        (Self::NodeMissing, "NodeMissing", "There is no Node of the name that nodevigil publishes to."),
        (Self::ForeignOwner, "ForeignOwner", "Another field manager owns or overwrites a condition of nodevigil."),
        (Self::CheckRefused, "CheckRefused", "The API server refuses the condition of a custom check."),
        (Self::PauseRefused, "PauseRefused", "The Node's annotation nodevigil.io/pause cannot be used."),
        (Self::MetricsNotServed, "MetricsNotServed", "The address of [metrics] listen cannot be bound."),
        (Self::RecordsNotUploaded, "RecordsNotUploaded", "The server of [records] upload_url does not accept records."),
    ];

    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The present troubles, shared by all tasks.
#[derive(Debug, Clone, Default)]
pub struct Troubles(watch::Sender<BTreeMap<Trouble, String>>);

impl Troubles {
    /// Records a trouble, or replaces its message. It is logged when it is new or differs.
    pub fn set(&self, trouble: Trouble, message: String) {
        self.0.send_if_modified(|present| {
            let is_new = present.get(&trouble) != Some(&message);
            if is_new {
                tracing::warn!("{}: {message}", trouble.name());
                present.insert(trouble, message);
            }
            is_new
        });
    }

    /// Records that a trouble is over.
    pub fn clear(&self, trouble: Trouble) {
        let is_over = self.0.send_if_modified(|present| present.remove(&trouble).is_some());
        if is_over {
            tracing::info!("{} is over", trouble.name());
        }
    }

    /// Records a trouble with this message, or that it is over.
    pub fn replace(&self, trouble: Trouble, message: Option<String>) {
        message.map_or_else(|| self.clear(trouble), |message| self.set(trouble, message));
    }

    /// All that there are, with their messages.
    pub fn present(&self) -> BTreeMap<Trouble, String> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_name() {
        for (trouble, name, _) in Trouble::ALL {
            assert_eq!((trouble.name(), format!("{trouble:?}").as_str()), (name, name));
        }
    }
}
