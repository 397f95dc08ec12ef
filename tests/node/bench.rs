//! Measures on a real node what the agent promises.

#[path = "../support/mod.rs"]
mod support;

fn main() {
    support::enter::enter();
}
