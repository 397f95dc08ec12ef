//! Troubles: what prevents nodevigil itself from working. Each is a metric, a line of `status`, and once an hour an Event, but never a condition.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// A kind of trouble. There is at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The settings are invalid; the last accepted ones are in effect.
    ConfigRefused,
    /// There is no D-Bus connection to systemd.
    BusLost,
    /// /dev/kmsg cannot be read.
    KernelLogUnreadable,
    /// No identity for the API server can be used.
    IdentityUnusable,
    /// The credential for the API server ends soon, and is not renewed by itself.
    CredentialExpiring,
    /// The API server refuses a request of nodevigil's: for want of a permission, by an admission policy, or because it cannot write.
    ApiRefused,
    /// There is no Node of the name that is published to.
    NodeMissing,
    /// Another field manager owns or overwrites a condition of ours.
    ForeignOwner,
    /// The API server refuses the condition of a custom check.
    CheckRefused,
    /// The Node's annotation nodevigil.io/pause cannot be used.
    PauseRefused,
    /// The address of `[metrics] listen` cannot be bound.
    MetricsNotServed,
    /// The server of `[records] upload_url` does not take records.
    RecordsNotUploaded,
}

impl Trouble {
    /// All kinds, each with its name in metrics, `status` and Events.
    pub const ALL: [(Self, &str); 12] = [
        (Self::ConfigRefused, "ConfigRefused"),
        (Self::BusLost, "BusLost"),
        (Self::KernelLogUnreadable, "KernelLogUnreadable"),
        (Self::IdentityUnusable, "IdentityUnusable"),
        (Self::CredentialExpiring, "CredentialExpiring"),
        (Self::ApiRefused, "ApiRefused"),
        (Self::NodeMissing, "NodeMissing"),
        (Self::ForeignOwner, "ForeignOwner"),
        (Self::CheckRefused, "CheckRefused"),
        (Self::PauseRefused, "PauseRefused"),
        (Self::MetricsNotServed, "MetricsNotServed"),
        (Self::RecordsNotUploaded, "RecordsNotUploaded"),
    ];

    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// What it means, for `nodevigil explain`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ConfigRefused => "The settings are invalid. The last accepted ones are in effect.",
            Self::BusLost => "There is no D-Bus connection to systemd.",
            Self::KernelLogUnreadable => "/dev/kmsg cannot be read.",
            Self::IdentityUnusable => "No identity for the API server can be used.",
            Self::CredentialExpiring => "The credential for the API server expires soon, and nothing renews it.",
            Self::ApiRefused => {
                "The API server refuses a request of nodevigil's: a permission is missing, an admission policy denies it, or the API server cannot write."
            }
            Self::NodeMissing => "There is no Node of the name that nodevigil publishes to.",
            Self::ForeignOwner => "Another field manager owns or overwrites a condition of nodevigil's.",
            Self::CheckRefused => "The API server refuses the condition of a custom check.",
            Self::PauseRefused => "The Node's annotation nodevigil.io/pause cannot be used.",
            Self::MetricsNotServed => "The address of [metrics] listen cannot be bound.",
            Self::RecordsNotUploaded => "The server of [records] upload_url does not take records.",
        }
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
        for (kind, name) in Trouble::ALL {
            assert_eq!((kind.name(), format!("{kind:?}").as_str()), (name, name));
        }
    }
}
