//! The host's memory: said before it kills, named when it has.

pub mod sample;

pub use sample::{Depth, Sample};
