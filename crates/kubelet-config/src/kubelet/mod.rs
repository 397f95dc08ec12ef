//! What the kubelet will get and has got: its unit, its arguments and its configuration, from bytes that are handed in.
//!
//! Files come through a [`tree::Tree`]; nothing else here opens a file, asks a process or resolves a name. Uses no rule.

pub mod args;
mod cloud;
pub mod config;
mod control_plane;
pub mod duration;
pub mod effective;
pub mod endpoint;
pub mod expected_flag;
pub mod flag_text;
pub mod flags;
pub mod gates;
pub mod healthz;
pub mod host_tree;
pub mod label;
pub mod layers;
pub mod location;
pub mod machine;
pub mod quantity;
pub mod resolve;
pub mod snapshot;
pub mod systemd;
mod table;
pub mod text;
pub mod tree;
pub mod unread;
pub mod version;
