//! The host's memory: said before it kills, named when it has.

pub mod growth;
pub mod sample;

pub use growth::{Grower, Who};
pub use sample::{Depth, Sample};
