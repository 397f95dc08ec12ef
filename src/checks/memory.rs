//! The host's memory: said before it kills, named when it has.
//!
//! [`machine`] goes from state to state, one [`Sample`] at a time: [`history`] keeps the last seconds, [`signals`] makes
//! rates and a forecast of them, [`rules`] says what these mean, [`why`] says it in words. [`growth`] follows who takes the
//! memory. [`check`] makes conditions of it all.

mod check;
pub mod growth;
mod history;
mod kills;
mod limits;
mod machine;
pub mod recording;
mod rules;
pub mod sample;
mod signals;
mod state;
mod why;

pub use check::{HINT, Memory, SPEC};
pub use growth::{Grower, Who};
pub use limits::Limits;
pub use machine::Machine;
pub use sample::{Depth, Sample};
pub use signals::Signals;
pub use state::{Stage, State, Transition};
pub use why::{Cause, Why};
