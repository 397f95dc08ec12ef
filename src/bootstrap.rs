//! The way of a node from its boot to being useful: its stages, each with its evidence; which one is stuck, and why most
//! probably.
//!
//! `nodevigil bootstrap` shows it while it happens, and the daemon's check `bootstrap` makes the condition
//! `NodeBootstrapped` of it. Both hand an [`Evidence`] to [`assess`]; the [`Timeline`] remembers when each stage was
//! reached. Pure.

mod assess;
pub mod cause;
pub mod cloud;
mod evidence;
mod record;
mod stage;
mod timeline;

pub use assess::{Progress, Standing, assess};
pub use evidence::{
    CloudInit, CredentialSeen, Evidence, HealthzSeen, HostSeen, KubeletRun, MAX_FINDINGS,
    MAX_NAMES, MAX_TEXT_BYTES, NodeSeen, NodeWords, RuleSeen, RuntimeSeen, ServerSeen, ServingSeen,
    UnitSeen,
};
pub use record::{By, Record, RecordedStage, Result as RecordedResult};
pub use stage::{Stage, Wait};
pub use timeline::{Mark, Moved, Patience, Timeline};

#[cfg(test)]
mod tests;
