//! What is watched, one file or directory each: a task that waits and reads, and pure functions that judge.

pub mod kubelet;

use tokio::sync::mpsc;

use crate::condition::{ConditionType, View};

/// Where a monitor sends its present view of a condition.
pub type Reports = mpsc::Sender<(ConditionType, View)>;
