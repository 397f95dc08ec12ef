//! What a kubelet gets from the files of a host, where each part of it comes from, and what is wrong with it.
//!
//! [`resolve`] does all steps, and [`lint`] judges what comes out. The steps, for those who need one alone:
//! [`candidate_units`], [`resolve_unit`], [`resolve_command`], [`parse_flags`], [`load_config`], [`effective_settings`].
//! [`plan`] tries the edits that findings come with, and [`rules()`] lists the rules.
//!
//! Files come through a [`Tree`]: [`HostTree`] reads a directory as the root of a host, and [`MemoryTree`] holds files for
//! tests. Nothing else here opens a file, starts a process or asks the network.
//!
//! ```
//! use kubelet_config::{Inputs, MemoryTree, lint, resolve};
//!
//! let tree = MemoryTree::new()
//!     .file("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet $ARGS\n")
//!     .file("/etc/systemd/system/kubelet.service.d/10-args.conf", "[service]\nEnvironment=ARGS=--v=2\n");
//! let snapshot = resolve(&tree, Inputs::default());
//! assert_eq!(snapshot.command.args.len(), 1, "the kubelet gets no argument");
//! let report = lint(&snapshot);
//! let finding = report.findings.iter().find(|finding| finding.rule == "SD011").unwrap();
//! assert_eq!(finding.at.to_string(), "/etc/systemd/system/kubelet.service.d/10-args.conf:1");
//! assert_eq!(finding.lost_flags, ["--v=2"]);
//! ```

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
