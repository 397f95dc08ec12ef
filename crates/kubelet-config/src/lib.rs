//! What the kubelet will get and has got, and rules on what is wrong with it.
//!
//! Files come through a [`kubelet::tree::Tree`], such as [`HostTree`](kubelet::host_tree::HostTree); nothing else here
//! opens a file, asks a process or resolves a name.

pub mod edit;
pub mod fix;
pub mod kubelet;
pub mod rules;
