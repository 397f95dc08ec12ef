//! What is shown to people and programs: status.json, metrics, tables, reports for CI.
//!
//! Uses `facts`, `host`, `settings` and `condition`.

pub mod ci;
pub mod metrics;
pub mod status;
pub mod table;
