//! What is read from the host and written to it, one file a thing. Nothing here judges.
//!
//! Uses `condition` for its types, and `settings`.

pub mod addresses;
pub mod blocking;
pub mod bootstrap;
pub mod child;
pub mod clock;
pub mod cloud_init;
pub mod credential;
pub mod cri;
pub mod disk;
pub mod endpoint;
pub mod goroutines;
pub mod healthz;
pub mod journal;
pub mod kernel;
pub mod kmsg;
pub mod kubelet;
pub mod log;
pub mod memory;
pub mod mounts;
pub mod notify;
pub mod oom;
pub mod packages;
pub mod pause;
pub mod pod;
pub mod pressure;
pub mod process;
pub mod program;
pub mod snapshot;
pub mod subject;
pub mod systemd;
pub mod top;

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file descriptor whose readiness is awaited.
fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and asks for what an OwnedFd is: one file that stays open while the value lives"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}
