//! What is shown to people and programs on the host: status.json, metrics, tables.
//!
//! Uses `host` and `condition`.

pub mod metrics;
pub mod status;
pub mod table;
