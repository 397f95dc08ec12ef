//! What is read from the host and written to it, one file a thing. Nothing here judges.

pub mod api;
pub mod child;
pub mod clock;
pub mod healthz;
pub mod journal;
pub mod kmsg;
pub mod kubelet;
pub mod log;
pub mod memory;
pub mod notify;
pub mod oom;
pub mod pause;
pub mod pressure;
pub mod process;
pub mod systemd;
pub mod trouble;

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// A file descriptor whose readiness is awaited.
fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and asks for what an OwnedFd is: one file that stays open while the value lives"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}
