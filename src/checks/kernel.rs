//! What the kernel reports, and what it means for the Node.
//!
//! Pure: `host::kmsg` reads the log, [`sift`] finds in it what matters, and every check is offered that.

mod assess;
pub mod check;
pub mod event;
mod hung;
pub mod oom;
pub mod pattern;
pub mod patterns;
pub mod place;
pub mod record;
pub mod sift;
pub mod state;
mod troubles;
mod workload;
