//! What the kubelet will get and has got: its unit, its arguments and its configuration, from bytes that are handed in.
//!
//! Files come through a [`tree::Tree`]; nothing else here opens a file, asks a process or resolves a name. Uses no rule.

pub mod args;
mod cloud;
pub mod config;
mod control_plane;
pub(crate) mod duration;
pub mod effective;
pub mod endpoint;
pub(crate) mod expected_flag;
pub(crate) mod flag_text;
pub mod flags;
pub mod gates;
pub mod healthz;
pub mod host_tree;
pub(crate) mod label;
pub mod layers;
pub mod location;
pub mod machine;
pub(crate) mod quantity;
pub mod resolve;
pub mod snapshot;
pub mod systemd;
pub(crate) mod table;
pub mod text;
pub mod tree;
pub(crate) mod unread;
pub mod version;
