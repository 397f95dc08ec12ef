//! The door to the machine: one small file a thing, no state shared between them.

pub mod addresses;
pub mod files;
pub mod helper;
pub mod journal;
pub mod kernel;
pub mod kmsg;
pub mod kubelet;
pub mod loaded;
pub mod memory;
pub mod network;
pub mod notify;
pub mod own;
pub mod packages;
pub mod pressure;
pub mod process;
pub mod program;
pub mod sample;
pub mod schedstat;
pub mod scrapes;
pub mod socket;
pub mod sockets;
pub mod strain;
pub mod systemd;
pub mod textfile;
pub mod transient;
pub mod tree;
