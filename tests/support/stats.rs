//! Percentiles of what was measured.

/// Measured values, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    /// How many there are.
    pub(crate) fn n(&self) -> usize {
        self.0.len()
    }

    /// The percentile by nearest rank: the smallest measured value that at least `percent` of all do not exceed. It is
    /// always a value that was measured, never one between two. None without values.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let rank = (percent * self.n()).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied()
    }

    /// The largest value.
    pub(crate) fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }
}
