//! nodevigil: a health agent for every Kubernetes node.
//!
//! This is the map; `ARCHITECTURE.md` draws the flow. Waiting is async, deciding is synchronous: the pure rooms
//! (`health`, `desired`, `kubelet`, `rules`, and every check's `assess`) know no clock, no file and no network.

pub mod agent;
pub mod bootstrap;
pub mod checks;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod desired;
pub mod door;
pub mod health;
pub mod helper;
pub mod host;
pub mod kubeconfig;
pub mod kubelet;
pub mod ledger;
pub mod metrics;
pub mod pause;
pub mod rules;
pub mod status;
