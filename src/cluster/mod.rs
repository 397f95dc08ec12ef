//! The door to Kubernetes: who we are, our Node, one apply, and backing off.
//!
//! `backoff` and `publisher` decide and are pure; `identity`, `connection`, `api` and `watch` do the talking.

pub mod api;
pub mod backoff;
pub mod connection;
pub mod identity;
pub mod publisher;
pub mod watch;
