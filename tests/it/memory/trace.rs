//! A recording, and the same host other than it was.

use std::{fs, path::Path};

use serde_json::{Map, Value};

pub(super) type Sample = Map<String, Value>;

/// A recording.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    pub(super) header: Sample,
    pub(super) samples: Vec<Sample>,
}

pub(super) fn number(sample: &Sample, field: &str) -> f64 {
    sample[field].as_f64().unwrap()
}

impl Trace {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let header = lines.next().unwrap();
        Self {
            header,
            samples: lines.collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let lines = std::iter::once(&self.header).chain(&self.samples);
        lines
            .map(|line| serde_json::to_string(line).unwrap() + "\n")
            .collect()
    }

    pub(super) fn what(&self) -> &str {
        self.header["what"].as_str().unwrap()
    }

    pub(super) fn killed_at(&self) -> Option<f64> {
        self.header["oom_kill_at_s"].as_f64()
    }

    /// From when on no more than 5 % are available for two seconds.
    pub(super) fn short_from(&self) -> Option<f64> {
        let few = 0.05 * number(&self.header, "total_mib");
        let mut since = None;
        for sample in &self.samples {
            if number(sample, "available_mib") > few {
                since = None;
                continue;
            }
            let at = number(sample, "t_s");
            if at - *since.get_or_insert(at) >= 2.0 {
                return since;
            }
        }
        None
    }

    /// Each field of each sample, given what `change` makes of it.
    pub(super) fn with(&self, mut change: impl FnMut(usize, &mut Sample)) -> Self {
        let mut changed = self.clone();
        for (index, sample) in changed.samples.iter_mut().enumerate() {
            change(index, sample);
        }
        changed
    }

    pub(super) fn without(&self, fields: &[&str]) -> Self {
        self.with(|_, sample| sample.retain(|name, _| !fields.contains(&name.as_str())))
    }

    /// As on a host of another size.
    pub(super) fn scaled(&self, times: f64) -> Self {
        let grown = |sample: &mut Sample| {
            for (name, value) in sample.iter_mut() {
                let is_size = name.ends_with("_mib")
                    || ["scan_per_s", "refault_per_s"].contains(&name.as_str());
                if is_size && let Some(number) = value.as_f64() {
                    *value = (number * times).into();
                }
            }
        };
        let mut scaled = self.with(|_, sample| grown(sample));
        grown(&mut scaled.header);
        scaled
    }

    /// As if the host had been slower (or faster), looked at as often for each of its own moments.
    pub(super) fn stretched(&self, times: f64) -> Self {
        let mut stretched = self.with(|_, sample| {
            let at = number(sample, "t_s") * times;
            sample.insert("t_s".to_owned(), at.into());
            for field in ["scan_per_s", "refault_per_s"] {
                let rate = number(sample, field) / times;
                sample.insert(field.to_owned(), rate.into());
            }
        });
        if let Some(at) = self.killed_at() {
            stretched
                .header
                .insert("oom_kill_at_s".to_owned(), (at * times).into());
        }
        stretched
    }

    /// Only these samples, as if the others had not been taken: rates are those of the longer time.
    pub(super) fn picked(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        const RATES: [&str; 6] = [
            "psi_some_pct",
            "psi_full_pct",
            "kubelet_full_pct",
            "scan_per_s",
            "refault_per_s",
            "majfault_per_s",
        ];
        let mut picked = Self {
            header: self.header.clone(),
            samples: Vec::new(),
        };
        let (mut sums, mut passed, mut last) = ([0.0; 6], 0.0, None);
        for (index, sample) in self.samples.iter().enumerate() {
            let at = number(sample, "t_s");
            let step = at - last.unwrap_or(at);
            last = Some(at);
            passed += step;
            for (sum, field) in sums.iter_mut().zip(RATES) {
                *sum += number(sample, field) * step;
            }
            if keep(index) {
                let mut sample = sample.clone();
                for (sum, field) in sums.iter().zip(RATES) {
                    let rate = if passed > 0.0 { sum / passed } else { 0.0 };
                    sample.insert(field.to_owned(), rate.into());
                }
                picked.samples.push(sample);
                (sums, passed) = ([0.0; 6], 0.0);
            }
        }
        picked
    }
}
