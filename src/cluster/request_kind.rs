//! The kinds of requests that we send to the API server: what the gate lets through, and what the metrics count by.

/// What a request is for, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Our conditions.
    Apply,
    /// Our taints.
    Taints,
    /// Our events.
    Events,
    /// Reading our Node and watching it.
    Watch,
}

impl RequestKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Apply, Self::Taints, Self::Events, Self::Watch];

    /// The word in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Taints => "taints",
            Self::Events => "events",
            Self::Watch => "watch",
        }
    }
}
