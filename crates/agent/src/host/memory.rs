//! The agent's own pages stay in memory: it has to report when the host has none left.

use rustix::mm::{MlockAllFlags, mlockall};

/// Locks each page once it is used (`MCL_ONFAULT`), so that what is never used costs nothing.
pub fn lock() {
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::warn!("mlockall: {error}: the agent may be swapped out; nodevigil.service sets LimitMEMLOCK=infinity");
    }
}
