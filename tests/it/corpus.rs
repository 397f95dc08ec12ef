//! The inputs that the fuzz targets kept, each once again without libFuzzer, so that none of them panics here either.
//!
//! `make fuzz` finds and keeps them; an input that once failed is kept by hand, with a name that says why.

#[expect(
    unreachable_pub,
    reason = "the targets are programs of another package, for which these functions are public"
)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Each input is read in full by a person some day.
const MAX_BYTES: usize = 8 << 10;

#[test]
fn every_input_that_was_kept_is_judged() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut failed = Vec::new();
    for (name, target) in targets::TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.len() <= MAX_BYTES, "{}", path.display());
            if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
                failed.push(path);
            }
            count += 1;
        }
        assert!(count > 0, "the corpus of {name} is empty");
    }
    assert!(failed.is_empty(), "these inputs fail: {failed:#?}");
}
