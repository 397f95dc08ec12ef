//! What the kubelet will get and has got: its arguments and its configuration, from bytes that are handed in.
//!
//! Pure: nothing here opens a file, asks a process or resolves a name.

pub mod args;
pub mod healthz;
pub mod yaml;
