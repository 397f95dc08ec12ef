//! The API server that a control plane runs as a static pod.

use std::path::Path;

use super::config::document::{Node, parse};
use super::effective::Settings;
use super::location::{Located, Location};
use super::text::small;
use super::tree::Tree;
use super::version::Version;

/// Its version, by the tag of its image in `kube-apiserver.yaml`, as kubeadm and RKE2 call it.
pub(super) fn api_server(tree: &dyn Tree, settings: &Settings) -> Option<Located<Version>> {
    let path = Path::new(settings.text("staticPodPath")?).join("kube-apiserver.yaml");
    let pod = parse(&Location::file(&path), &small(tree, path.to_str()?)?).ok()?;
    let is_api_server =
        |container: &&Node| container.get("name").and_then(Node::text).as_deref() == Some("kube-apiserver");
    let image = pod.get("spec")?.get("containers")?.items().iter().find(is_api_server)?.get("image")?;
    let text = image.text()?;
    let (_, tag) = text.split('@').next()?.rsplit_once(':')?;
    Some(Located { value: tag.parse().ok()?, at: image.at.clone() })
}
