//! What the kubelet will get and has got, and rules on what is wrong with it.
//!
//! Pure: files come through a [`kubelet::tree::Tree`]; nothing here opens a file, asks a process or resolves a name.

pub mod edit;
pub mod kubelet;
pub mod rules;
