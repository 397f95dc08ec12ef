//! The kinds of log lines that have a name of their own: each a fixed 128-bit id that the journal carries as
//! `MESSAGE_ID` and the catalogue explains.
//!
//! An id is for ever: dashboards and `journalctl MESSAGE_ID=…` hang on it. A new kind gets a new one from
//! `systemd-id128 new`.

/// A kind of log line: `info!(message_id = Kind::Started.id(), node = name, "started")`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The daemon has started; its version and node are in the fields.
    Started,
    /// The daemon stops because it was asked to.
    Stopped,
    /// Says as whom the daemon speaks to the API server, or why it speaks to none.
    Identity,
    /// A condition of the Node has flipped, with its status, reason and message.
    ConditionChanged,
    /// A kubelet was found and is watched from now on.
    KubeletFound,
    /// The kubelet that was watched has ended, with what systemd says about it.
    KubeletEnded,
    /// The API server could not be written to; it is tried again, more and more slowly.
    PublishFailed,
    /// The API server takes what the daemon writes again.
    PublishRecovered,
    /// The privileged helper does not answer; what needs it is unknown until it does.
    HelperUnavailable,
    /// The privileged helper answers again.
    HelperBack,
    /// `systemd` cannot be asked over D-Bus; unit states and causes of exits are unknown until it can.
    BusLost,
    /// `systemd` can be asked over D-Bus again.
    BusBack,
    /// Says how much memory is locked, or why it could not be.
    LockedPages,
    /// Log lines were dropped because the journal did not take them fast enough.
    LogDropped,
    /// Says which configuration files were read.
    Config,
    /// The Node of this machine is not there; nothing is published until it is.
    NodeMissing,
    /// The Node of this machine is there (again), with its UID.
    NodeFound,
    /// Somebody asks for quiet: problems are held back, and the line says by whom and until when.
    StandingDown,
    /// Who asked for quiet does so no more.
    StandingUp,
    /// A condition type is left to another field manager that owns it; what to do is in the line.
    TypeRefused,
    /// A condition type that was left to another is published: nobody else owns it any more.
    TypeTaken,
    /// No taints can be set: the daemon speaks with the kubelet's identity; the line says what to do.
    TaintsRefused,
    /// Says where the metrics are, or why they are not there.
    Metrics,
    /// A pause ends within the hour, or what asked for quiet has done so for too long and is ignored.
    PauseEnds,
    /// The configuration that is written cannot be used: file, line and key, and which is used in its place.
    ConfigRefused,
}

impl Kind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::Started,
        Self::Stopped,
        Self::Identity,
        Self::ConditionChanged,
        Self::KubeletFound,
        Self::KubeletEnded,
        Self::PublishFailed,
        Self::PublishRecovered,
        Self::HelperUnavailable,
        Self::HelperBack,
        Self::BusLost,
        Self::BusBack,
        Self::LockedPages,
        Self::LogDropped,
        Self::Config,
        Self::NodeMissing,
        Self::NodeFound,
        Self::StandingDown,
        Self::StandingUp,
        Self::TypeRefused,
        Self::TypeTaken,
        Self::TaintsRefused,
        Self::Metrics,
        Self::PauseEnds,
        Self::ConfigRefused,
    ];

    /// The id, 32 hexadecimal digits.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Started => "762e11b9152543e49bb65b07331e9b03",
            Self::Stopped => "1115260f702043f1bef9fc029674e80b",
            Self::Identity => "c2ea8a827cd546d88b8e53e976f9ca34",
            Self::ConditionChanged => "d5ae1655a9ac4946a7c37210a12d7b38",
            Self::KubeletFound => "40d6d95db3504aebab0293ab95cf0263",
            Self::KubeletEnded => "f320ea6148594358b25769a195fa6814",
            Self::PublishFailed => "23be13625bc04929a8b39ee6bdf52917",
            Self::PublishRecovered => "3a87cbf8a2d5406994407a0f5bc21fb3",
            Self::HelperUnavailable => "3c1111ce9c8541e28d86266f26ad863b",
            Self::HelperBack => "55b0f3d8c41a43f78b62fbb446c3563f",
            Self::BusLost => "d59d1227787a430cb558d632a164aa92",
            Self::BusBack => "481d0deaa2fd48f5852d3d17afedca5b",
            Self::LockedPages => "94576d7404aa4c4d9bb455a517ac0600",
            Self::LogDropped => "6a7f75ff82494ee1987be9fe434880b9",
            Self::Config => "504a5a75956842c9a3a7b75a0d59962a",
            Self::NodeMissing => "d10d3b963d124c1281ca1047cf3f7475",
            Self::NodeFound => "6291bc2ada7f449ba0bede9bb1e397d3",
            Self::StandingDown => "d9f3b6a5bcdc421ea0ef7dadd5afe6e3",
            Self::StandingUp => "b672cede5d0e4e7dbea6d851a3688bd3",
            Self::TypeRefused => "20ad4772b8e14003996b95fd7e4252e4",
            Self::TypeTaken => "4132a11138c041869e5e6a85dc871da7",
            Self::TaintsRefused => "54d0faa6ff474a758eb7c1e516b7661a",
            Self::Metrics => "b551aebff35f42d7bb8f17ca19e5bcaf",
            Self::PauseEnds => "90c4995f21984fa1ad108063a65e46aa",
            Self::ConfigRefused => "6815a9b36edd4d23b2639ae1fa51a236",
        }
    }

    /// What has happened, in a sentence.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Started => "The daemon has started; its version and node are in the fields.",
            Self::Stopped => "The daemon stops because it was asked to.",
            Self::Identity => {
                "Says as whom the daemon speaks to the API server, or why it speaks to none."
            }
            Self::ConditionChanged => {
                "A condition of the Node has flipped, with its status, reason and message."
            }
            Self::KubeletFound => "A kubelet was found and is watched from now on.",
            Self::KubeletEnded => {
                "The kubelet that was watched has ended, with what systemd says about it."
            }
            Self::PublishFailed => {
                "The API server could not be written to; it is tried again, more and more slowly."
            }
            Self::PublishRecovered => "The API server takes what the daemon writes again.",
            Self::HelperUnavailable => {
                "The privileged helper does not answer; what needs it is unknown until it does."
            }
            Self::HelperBack => "The privileged helper answers again.",
            Self::BusLost => {
                "systemd cannot be asked over D-Bus; unit states and causes of exits are unknown until it can."
            }
            Self::BusBack => "systemd can be asked over D-Bus again.",
            Self::LockedPages => "Says how much memory is locked, or why it could not be.",
            Self::LogDropped => {
                "Log lines were dropped because the journal did not take them fast enough."
            }
            Self::Config => "Says which configuration files were read.",
            Self::NodeMissing => {
                "The Node of this machine is not there; nothing is published until it is."
            }
            Self::NodeFound => "The Node of this machine is there (again), with its UID.",
            Self::StandingDown => {
                "Somebody asks for quiet: problems are held back, and the line says by whom and until when."
            }
            Self::StandingUp => "Who asked for quiet does so no more.",
            Self::TypeRefused => {
                "A condition type is left to another field manager that owns it; what to do is in the line."
            }
            Self::TypeTaken => {
                "A condition type that was left to another is published: nobody else owns it any more."
            }
            Self::TaintsRefused => {
                "No taints can be set: the daemon speaks with the kubelet's identity; the line says what to do."
            }
            Self::Metrics => "Says where the metrics are, or why they are not there.",
            Self::PauseEnds => {
                "A pause ends within the hour, or what asked for quiet has done so for too long and is ignored."
            }
            Self::ConfigRefused => {
                "The configuration that is written cannot be used: file, line and key, and which is used in its place."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_well_formed() {
        let ids: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.id()).collect();
        assert_eq!(ids.len(), Kind::ALL.len());
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        for kind in Kind::ALL {
            assert!(
                kind.id().len() == 32 && kind.id().bytes().all(digit),
                "{kind:?}"
            );
            assert!(kind.doc().ends_with('.'), "{kind:?}");
        }
        assert_eq!(
            Kind::ALL.last(),
            Some(&Kind::ConfigRefused),
            "a new kind belongs in ALL"
        );
        assert_eq!(Kind::ALL.len(), Kind::ConfigRefused as usize + 1);
    }
}
