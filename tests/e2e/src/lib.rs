//! What boots real Kubernetes nodes on this machine, for the stories and for tests/full.
#![expect(clippy::return_self_not_must_use, reason = "a node that is described and not booted is seen by its story")]

pub mod support;
