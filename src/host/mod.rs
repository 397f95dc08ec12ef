//! The door to the machine: one small file a thing, no state shared between them.

pub mod files;
pub mod helper;
pub mod journal;
pub mod kubelet;
pub mod memory;
pub mod notify;
pub mod process;
pub mod systemd;
pub mod tree;
