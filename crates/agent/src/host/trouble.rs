//! What nodevigil itself cannot do at present: a metric, a line of `status`, and once an hour an Event. Never a condition.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A kind of trouble. There is at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The configuration is refused; the last accepted settings go on.
    ConfigRefused,
    /// There is no D-Bus connection to systemd.
    BusLost,
    /// /dev/kmsg cannot be read.
    KernelLogUnreadable,
    /// No identity for the API server can be used.
    IdentityUnusable,
    /// The API server refuses what nodevigil asks for.
    ApiForbidden,
    /// The API server refuses a request of nodevigil's.
    ApiRefused,
    /// Another field manager owns or overwrites a condition of ours.
    ForeignOwner,
    /// The Node's annotation nodevigil.io/pause cannot be used.
    PauseRefused,
    /// The address of `[metrics] listen` cannot be bound.
    MetricsNotServed,
}

impl Trouble {
    pub const ALL: &[Self] = &[
        Self::ConfigRefused,
        Self::BusLost,
        Self::KernelLogUnreadable,
        Self::IdentityUnusable,
        Self::ApiForbidden,
        Self::ApiRefused,
        Self::ForeignOwner,
        Self::PauseRefused,
        Self::MetricsNotServed,
    ];

    /// The name in metrics, `status` and Events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConfigRefused => "ConfigRefused",
            Self::BusLost => "BusLost",
            Self::KernelLogUnreadable => "KernelLogUnreadable",
            Self::IdentityUnusable => "IdentityUnusable",
            Self::ApiForbidden => "ApiForbidden",
            Self::ApiRefused => "ApiRefused",
            Self::ForeignOwner => "ForeignOwner",
            Self::PauseRefused => "PauseRefused",
            Self::MetricsNotServed => "MetricsNotServed",
        }
    }
}

/// The present troubles, shared by all tasks.
#[derive(Debug, Clone, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<Trouble, String>>>);

impl Troubles {
    /// Records a trouble, or replaces its message. It is logged when it is new or differs.
    pub fn set(&self, trouble: Trouble, message: String) {
        let mut present = self.lock();
        if present.get(&trouble) != Some(&message) {
            tracing::warn!("{}: {message}", trouble.name());
            present.insert(trouble, message);
        }
    }

    /// Records that a trouble is over.
    pub fn clear(&self, trouble: Trouble) {
        if self.lock().remove(&trouble).is_some() {
            tracing::info!("{}: over", trouble.name());
        }
    }

    /// All that there are, with their messages.
    pub fn present(&self) -> BTreeMap<Trouble, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Trouble, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
