//! The configuration that a kubelet gets from the files of a host, the origin of each part, and what is wrong with it.
//!
//! [`resolve`] does all steps, and [`lint`] judges the result. The single steps:
//! [`candidate_units`], [`resolve_unit`], [`resolve_command`], [`parse_flags`], [`load_config`], [`effective_settings`].
//! [`plan`] tries the edits that findings suggest, and [`rules()`] lists the rules.
//!
//! Files come through a [`Tree`]: [`HostTree`] reads a directory as the root of a host, and [`MemoryTree`] holds files for
//! tests. Nothing else here opens a file, starts a process or uses the network.

pub mod fix;
pub mod kubelet;
pub mod rules;
mod step;

pub use fix::plan;
pub use kubelet::config::load_config;
pub use kubelet::effective::effective_settings;
pub use kubelet::flags::parse::parse_flags;
pub use kubelet::host_tree::HostTree;
pub use kubelet::layers::{candidate_units, resolve_command};
pub use kubelet::resolve::{Inputs, resolve};
pub use kubelet::snapshot::Snapshot;
pub use kubelet::systemd::resolve_unit;
pub use kubelet::tree::{MemoryTree, Tree};
pub use rules::{lint, rules};

/// The README's program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
