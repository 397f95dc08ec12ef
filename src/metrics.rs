//! State → OpenMetrics text.
//!
//! Pure: [`Snapshot`] is what is known at one moment, borrowed from whoever knows it; [`render`] writes it down. The
//! registry [`families`] says which metrics there are, with type, unit, labels and help: docs/reference/metrics.md is
//! made from it, and what the registry does not know cannot be written.
//!
//! Nothing is rendered unless somebody asks, and to count costs no memory: counters and histograms are fixed arrays.

mod counted;
mod family;
mod histogram;
pub mod http;
mod samples;
mod snapshot;
#[cfg(test)]
mod tests;

pub use counted::{Counted, HelperTally, Outcome, ReasonCount};
pub use family::{Family, Kind, Label, families};
pub use histogram::{BOUNDS, Histogram};
pub use samples::Format;
pub use snapshot::{Peer, Process, Snapshot};

use samples::Samples;

/// The largest exposition, in bytes: every condition with every reason that it can have counted, every label with every
/// value, every number as long as it gets. A test renders that.
pub const MAX_BYTES: usize = 96 * 1024;

/// An exposition of a node where little has happened is some 15 KiB: it is written without growing.
const USUAL_BYTES: usize = 24 * 1024;

/// The exposition: everything that is known, as text.
pub fn render(snapshot: &Snapshot<'_>, format: Format) -> String {
    let mut out = String::with_capacity(USUAL_BYTES);
    for family in families() {
        (family.samples)(snapshot, &mut Samples::new(&mut out, family, format));
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}
