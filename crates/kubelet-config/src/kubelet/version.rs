//! Kubernetes versions: `v1.33.4`, `1.33`, `v1.33.5+k3s1`.

use std::fmt;
use std::str::FromStr;

/// A release series, as in `1.35`; the major version has been 1 ever since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(pub u16);

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// A kubelet's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The release series.
    pub minor: Minor,
    pub(crate) patch: Option<u16>,
    /// What follows: `+k3s1`, `-eks-1234`, `-beta.0`.
    pub(crate) suffix: String,
}

/// A text that is no version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no Kubernetes version: write it as 1.33.4 or v1.33")]
pub struct BadVersion(String);

impl Version {
    /// Whether it is a build of Kubernetes itself: k3s, RKE2, k0s and EKS add no flags or feature gates of their own.
    pub(crate) fn is_of_kubernetes(&self) -> bool {
        self.suffix.is_empty() || ["+k3s", "+rke2", "+k0s", "-eks-"].iter().any(|own| self.suffix.starts_with(own))
    }
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let bare = text.trim();
        let bare = bare.strip_prefix('v').unwrap_or(bare);
        let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
        let (numbers, suffix) = bare.split_at(end);
        let numbers: Option<Vec<u16>> = numbers.split('.').map(|number| number.parse().ok()).collect();
        let (minor, patch) = match numbers.as_deref() {
            Some([1, minor]) => (*minor, None),
            Some([1, minor, patch]) => (*minor, Some(*patch)),
            _ => return Err(BadVersion(text.chars().take(64).collect())),
        };
        Ok(Self { minor: Minor(minor), patch, suffix: suffix.to_owned() })
    }
}

impl fmt::Display for Version {
    /// Without the `v`, as messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.minor)?;
        if let Some(patch) = self.patch {
            write!(f, ".{patch}")?;
        }
        f.write_str(&self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_printed() {
        for text in ["1.33.4", "1.33", "1.33.5+k3s1", "1.32.9-eks-113cf36", "1.36.0-beta.0"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
            let with_v: Version = format!("v{text}").parse().unwrap();
            assert_eq!(with_v.to_string(), text);
        }
        assert_eq!("v1.9".parse::<Version>().unwrap().minor, Minor(9));
        assert!(Minor(9) < Minor(10));
    }

    #[test]
    fn what_is_no_version_says_so() {
        for text in ["", "v", "2.1", "1", "1.x", "1.2.3.4", "1.99999"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
