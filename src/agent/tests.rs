//! Tests of the loop (being written).
