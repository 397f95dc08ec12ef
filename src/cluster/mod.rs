//! The door to Kubernetes: who we are, our Node, one apply, and backing off.
//!
//! `gate`, `episode`, `backoff`, `publisher` (conditions, with `owners` and their `transitions`), `time` (the cluster's), `taints` and
//! `events` decide and are pure;
//! `identity`, `connection`, `api` and `watch` do the talking.

pub mod api;
pub mod backoff;
pub mod connection;
mod dial;
pub mod episode;
pub mod events;
pub mod gate;
pub mod identity;
pub mod inherited;
pub mod owners;
pub mod publisher;
mod request_kind;
pub mod taints;
pub mod tally;
pub mod time;
mod tls;
pub mod watch;
