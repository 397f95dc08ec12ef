//! The packages that the tests install, two versions of each, and the node that has them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::build::{self, Arch, Wanted};
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::{enter, tools};

/// The version that comes after.
pub(crate) const NEXT: &str = "99.1.0";

/// How one of the two package managers is spoken with.
pub(crate) struct Format {
    index: usize,
    install: &'static str,
    upgrade: &'static str,
    pub(crate) remove: &'static str,
    pub(crate) purge: Option<&'static str>,
    /// Says which version is there.
    pub(crate) version: &'static str,
}

/// Without triggers: the machine's own, such as an index of all its manuals, are not ours.
pub(crate) const DEB: Format = Format {
    index: 0,
    install: "dpkg --no-triggers --install",
    upgrade: "dpkg --no-triggers --install",
    remove: "dpkg --no-triggers --remove nodevigil",
    purge: Some("dpkg --no-triggers --purge nodevigil"),
    version: "dpkg-query --show nodevigil",
};

/// Debian's rpm, whose database knows no other package, systemd neither.
pub(crate) const RPM: Format = Format {
    index: 1,
    install: "rpm --force-debian --nodeps --install",
    upgrade: "rpm --force-debian --nodeps --upgrade",
    remove: "rpm --force-debian --erase nodevigil",
    purge: None,
    version: "rpm --query nodevigil",
};

/// The packages.
pub(crate) struct Kit {
    first: [PathBuf; 2],
    second: [PathBuf; 2],
}

impl Kit {
    /// Made once a run, of the agent that is tested.
    pub(crate) fn made() -> Result<&'static Self> {
        static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
        let kit = KIT.get_or_init(|| Self::make().map_err(|error| format!("{error:#}")));
        kit.as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn make() -> Result<Self> {
        let make = |version: String| {
            build::packages(&Wanted {
                out: enter::work().join("packages").join(&version),
                version,
                binary: tools::agent()?,
                arch: Arch::Amd64,
                nfpm: tools::nfpm()?,
                epoch: 1_790_000_000,
            })
        };
        Ok(Self {
            first: make(build::version())?,
            second: make(NEXT.to_owned())?,
        })
    }

    /// A node that is Ready, with the packages in /usr/bin, and nothing of nodevigil's installed.
    pub(crate) fn scene(
        &self,
        plane: &Arc<ControlPlane>,
        name: &str,
        format: &Format,
    ) -> Result<Scene> {
        let watch = plane.watch_node(name)?;
        let mut builder = NodeBuilder::new(plane, name);
        for packages in [&self.first, &self.second] {
            builder = builder.program(packages[format.index].clone());
        }
        let node = builder.boot()?;
        node.wait_ready(Duration::from_mins(1))?;
        Ok(Scene {
            plane: Arc::clone(plane),
            node,
            watch,
        })
    }

    /// The first version's deb.
    pub(crate) fn deb(&self) -> &Path {
        &self.first[DEB.index]
    }

    /// The next version's.
    pub(crate) fn next_deb(&self) -> &Path {
        &self.second[DEB.index]
    }

    /// Both versions, the first one first.
    pub(crate) fn both(&self, format: &Format) -> [&PathBuf; 2] {
        [&self.first, &self.second].map(|packages| &packages[format.index])
    }

    /// The command that installs the first version.
    pub(crate) fn install(&self, format: &Format) -> String {
        command(format.install, &self.first[format.index])
    }

    /// The command that puts the next version in its place.
    pub(crate) fn upgrade(&self, format: &Format) -> String {
        command(format.upgrade, &self.second[format.index])
    }
}

fn command(install: &str, package: &Path) -> String {
    let name = package.file_name().context("a package has a name");
    let name = name.map(|name| name.to_string_lossy().into_owned());
    format!("{install} /usr/bin/{}", name.unwrap_or_default())
}
