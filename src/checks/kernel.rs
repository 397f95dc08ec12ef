//! What the kernel reports, and what it means for the Node.

pub mod event;
