//! The kinds of nodes that stories run on.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::namespaces::ADDRESS;
use super::{repository, say};

/// A kind of node. Versions are those of its Debian; `e2e --platforms` writes which they were.
#[derive(Debug)]
pub struct Kind {
    /// What `--node` calls it.
    pub name: &'static str,
    /// The Debian suite of a guest's image; none for a node in namespaces over this machine's own root.
    pub suite: Option<&'static str>,
    /// Of its processor and its programs, as Debian names it.
    pub architecture: &'static str,
    /// The host's name; none is the Node's.
    pub hostname: Option<&'static str>,
    /// The units of kubelet and container runtime, without `.service`.
    pub units: [&'static str; 2],
    /// Where the container runtime listens.
    pub socket: &'static str,
    /// Whether containerd is the newest release, in place of Debian's.
    pub newest_containerd: bool,
}

/// What the stories call the units.
pub const USUAL_UNITS: [&str; 2] = ["kubelet", "containerd"];

/// The architecture of the machine that runs the stories.
pub const HOST: &str = "amd64";

const NAMESPACES: Kind = Kind {
    name: "namespaces",
    suite: None,
    architecture: HOST,
    hostname: None,
    units: USUAL_UNITS,
    socket: "/run/containerd/containerd.sock",
    newest_containerd: false,
};

/// The first one is that of the gate.
#[rustfmt::skip]
pub const KINDS: [Kind; 6] = [
    NAMESPACES,
    Kind { name: "debian-13", suite: Some("trixie"), hostname: Some("ip-10-99-0-2"), ..NAMESPACES },
    Kind { name: "debian-13-containerd-2", suite: Some("trixie"), newest_containerd: true, ..NAMESPACES },
    Kind { name: "debian-12", suite: Some("bookworm"), hostname: Some("Worker-2.example.com"),
        units: ["snap.k8s.kubelet", "snap.k8s.containerd"], socket: "/var/snap/k8s/common/run/containerd.sock", ..NAMESPACES },
    Kind { name: "debian-sid", suite: Some("sid"), ..NAMESPACES },
    Kind { name: "debian-13-arm64", suite: Some("trixie"), architecture: "arm64", ..NAMESPACES },
];

static CURRENT: OnceLock<&Kind> = OnceLock::new();

/// The kind of this run's nodes.
pub fn current() -> &'static Kind {
    CURRENT.get().copied().unwrap_or(&KINDS[0])
}

/// Sets it, once and before the first node.
pub fn set_current(kind: &'static Kind) -> Result<()> {
    CURRENT.set(kind).map_err(|_| anyhow!("this run has its kind of nodes"))
}

impl Kind {
    /// The kind of that name, for the command line.
    pub fn find(name: &str) -> Result<&'static Self> {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        KINDS.iter().find(|kind| kind.name == name).with_context(|| format!("one of {}", names.join(", ")))
    }

    /// The address of its nodes.
    pub fn address(&self) -> &'static str {
        if self.suite.is_some() { "10.99.0.2" } else { ADDRESS }
    }

    /// By how much longer stories wait: an emulated processor is slow.
    pub fn patience(&self) -> u32 {
        if self.suite.is_some() { 3 } else { 1 }
    }

    /// A path, a file or a command of a story, with the names of this kind's units.
    pub fn translate(&self, text: &str) -> String {
        let pairs = USUAL_UNITS.iter().zip(self.units);
        pairs.fold(text.to_owned(), |text, (usual, unit)| {
            text.replace(&format!("{usual}.service"), &format!("{unit}.service"))
        })
    }

    /// A program that has other units in mind: `systemctl stop kubelet`. It is found before the real one.
    pub fn wrapper(&self, program: &str) -> String {
        let arms = USUAL_UNITS.iter().zip(self.units).map(|(usual, unit)| format!("{usual}) word={unit};; "));
        format!(
            "#!/bin/sh\nfor word; do shift; case $word in {}esac; set -- \"$@\" \"$word\"; done\nexec /usr/bin/{program} \"$@\"\n",
            arms.collect::<String>()
        )
    }

    /// The directory of a guest's image.
    pub fn image(&self) -> Result<PathBuf> {
        let suite = self.suite.context("a node in namespaces has no image")?;
        let images = std::env::var_os("NODEVIGIL_GUESTS");
        Ok(PathBuf::from(images.context("NODEVIGIL_GUESTS is not set: start the stories by `make stories`")?)
            .join(format!("{suite}-{}", self.architecture)))
    }

    /// Makes the image if there is none. This needs the network, and so comes before the run's namespaces.
    pub fn prepare(&self) -> Result<()> {
        let Some(suite) = self.suite else { return Ok(()) };
        let image = self.image()?;
        if !image.exists() {
            say(&format!("making the image of Debian {suite} for {} (a minute)", self.architecture));
            let script = repository().join("tests/e2e/image.sh");
            let made = Command::new(script).args([suite, self.architecture]).arg(&image).status()?;
            ensure!(made.success(), "tests/e2e/image.sh {suite} ended with {made}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stories_say_of_usual_units_is_translated() {
        let kind = Kind::find("debian-12").unwrap();
        let text = kind.translate("/etc/systemd/system/kubelet.service.d/1.conf: After=containerd.service");
        assert_eq!(text, "/etc/systemd/system/snap.k8s.kubelet.service.d/1.conf: After=snap.k8s.containerd.service");
        assert!(kind.wrapper("systemctl").contains("kubelet) word=snap.k8s.kubelet;;"));
        assert_eq!(KINDS[0].translate("kubelet.service"), "kubelet.service");
    }
}
