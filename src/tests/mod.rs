//! Tests of the whole program.

mod consumers;
mod reference;
