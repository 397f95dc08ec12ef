//! What is shown to people and programs on the host: status.json, metrics, tables.

pub mod metrics;
pub mod status;
pub mod table;
