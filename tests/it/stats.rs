//! The numbers in docs/promises.md are nearest-rank percentiles: of values that were measured.

#[path = "../support/stats.rs"]
mod support;

use support::Sample;

fn up_to(n: u32) -> Sample {
    (1..=n).rev().map(f64::from).collect()
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let sample = up_to(200);
    assert_eq!(sample.n(), 200);
    assert_eq!(sample.percentile(50), Some(100.0));
    assert_eq!(sample.percentile(99), Some(198.0), "two may be worse");
    assert_eq!(sample.max(), Some(200.0));
}

#[test]
fn few_values_have_percentiles_too() {
    assert_eq!(up_to(20).percentile(99), Some(20.0), "the maximum");
    assert_eq!(up_to(20).percentile(90), Some(18.0));
    assert_eq!(up_to(3).percentile(50), Some(2.0));
    let one = up_to(1);
    assert_eq!(
        [one.percentile(0), one.percentile(50), one.percentile(100)],
        [Some(1.0); 3]
    );
}

#[test]
fn nothing_measured_is_no_number() {
    let none = Sample::default();
    assert_eq!((none.percentile(50), none.max()), (None, None));
}
