//! Integration tests: the built binary on this machine, without a node, and the repository's own rules.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests start programs, read files and wait, and fail by panicking: the doors are the product's"
)]

mod audit;
mod bundle;
mod check;
mod cli;
mod corpus;
mod daemon;
mod effective;
mod linear;
mod memory;
mod monitoring;
mod operate;
mod oracle;
mod policy;
mod samples;
mod security;
mod stats;
mod support;
mod tables;
mod tidy;
mod trust;
