//! Shows the agent at work on a real node.

#[path = "../support/mod.rs"]
mod support;

fn main() {
    support::enter::enter();
}
